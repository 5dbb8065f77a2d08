"""A MongoDB in small: a real server on a real port that speaks as much of the wire protocol as recording needs."""

import socketserver
import struct
import threading

import bson

_OP_REPLY, _OP_QUERY, _OP_MSG = 1, 2004, 2013


class SmallMongo(socketserver.ThreadingTCPServer):
    """Collections in memory, by name. fail: refuse every write from now on."""

    daemon_threads = allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.collections, self.fail, self.turn = {}, False, threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"mongodb://127.0.0.1:{self.server_address[1]}/runs"

    def answer(self, command: dict) -> dict:
        """The reply to one command."""
        name, target = next(iter(command.items()))
        if name.lower() in ("hello", "ismaster"):
            limits = {"maxWireVersion": 25, "minWireVersion": 0, "maxBsonObjectSize": 2**24, "maxWriteBatchSize": 1000}
            return {"ok": 1, "isWritablePrimary": True, "ismaster": True, "maxMessageSizeBytes": 48_000_000, **limits}
        documents = self.collections.setdefault(target, [])
        if name in ("insert", "update") and self.fail:
            return {"ok": 0, "code": 14031, "errmsg": "the disk is full"}
        if name == "insert":
            documents += command["documents"]
            return {"ok": 1, "n": len(command["documents"])}
        if name == "update":
            return {"ok": 1, **self._update(documents, command["updates"][0])}
        found = [d for d in documents if _fits(d, command.get("filter", {}))] if name == "find" else []
        return {"ok": 1, "cursor": {"id": 0, "ns": f"runs.{target}", "firstBatch": found}}

    def _update(self, documents: list, update: dict) -> dict:
        found = [document for document in documents if _fits(document, update["q"])]
        made = [] if found else [{"_id": bson.ObjectId(), **update["q"]}]
        documents += made
        for document in found or made:
            document |= update["u"].get("$set", {})
            for field, more in update["u"].get("$push", {}).items():
                document[field] = [*document.get(field, []), *more["$each"]]
        upserted = [{"index": 0, "_id": document["_id"]} for document in made]
        return {"n": 1, "nModified": len(found)} | ({"upserted": upserted} if made else {})


def _fits(document: dict, wanted: dict) -> bool:
    return all(document.get(key) == value for key, value in wanted.items())


class _Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while head := self.rfile.read(16):
            length, request, _, kind = struct.unpack("<iiii", head)
            body = self.rfile.read(length - 16)
            command = _of_query(body) if kind == _OP_QUERY else _of_message(body)
            with self.server.turn:
                reply = bson.encode(self.server.answer(command))
            if kind == _OP_QUERY:
                answer, code = struct.pack("<iqii", 8, 0, 0, 1) + reply, _OP_REPLY
            else:
                answer, code = struct.pack("<iB", 0, 0) + reply, _OP_MSG
            self.wfile.write(struct.pack("<iiii", 16 + len(answer), 1, request, code) + answer)


def _of_query(body: bytes) -> dict:
    return bson.decode(body[body.index(b"\0", 4) + 9 :])


def _of_message(body: bytes) -> dict:
    """A section of kind 0 is the command, one of kind 1 a list of documents that belongs into it."""
    command, at = {}, 4
    while at < len(body):
        kind, size = body[at], struct.unpack_from("<i", body, at + 1)[0]
        section = body[at + 1 : at + 1 + size]
        if kind == 0:
            command |= bson.decode(section)
        else:
            end = section.index(b"\0", 4)
            command[section[4:end].decode()] = bson.decode_all(section[end + 1 :])
        at += 1 + size
    return command
