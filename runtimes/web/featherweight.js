// Featherweight's packed students (.fwt) in JavaScript; docs/guide/web.md describes the functions.
//   const model = await load(file);            // the bytes of a model
//   model.predict("a gorgeous , witty film");  // {label, probabilities}
const compileModule = async () => {
  const url = new URL("./featherweight.wasm", import.meta.url);
  // Node.js fetches no files.
  if (url.protocol == "file:") return WebAssembly.compile(process.getBuiltinModule("fs").readFileSync(url));
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status} ${response.statusText}`);
  return WebAssembly.compile(await response.arrayBuffer());
};
let compiled;
const ownModule = () => compiled ??= compileModule().catch(error => {
  compiled = undefined; // the next call tries again
  throw error;
});
export const load = async (file, module = ownModule()) => {
  if (file?.byteLength == null) throw new TypeError("a model is an ArrayBuffer or a Uint8Array with the bytes of its file");
  const { exports: c } = await WebAssembly.instantiate(await module);
  const coder = new TextEncoder(), decoder = new TextDecoder();
  const bytes = (at, length) => new Uint8Array(c.memory.buffer, at, length);
  const floats = (at, length) => new Float32Array(c.memory.buffer, at, length);
  const about = () => new Uint32Array(c.memory.buffer, c.about(), 17);
  const check = status => {
    if (!status) return;
    throw new Error(decoder.decode(bytes(c.error(status), 200)).split("\0")[0]);
  };
  const place = at => at || check(13);
  const data = new Uint8Array(file.buffer ?? file, file.byteOffset, file.byteLength);
  bytes(place(c.room(data.length)), data.length).set(data);
  check(c.open(data.length));
  const [, , , , pair, tags, multilabel, rejects, count, outputs] = about();
  const [temperature, threshold] = [44, 72].map(at => floats(c.about() + at, 1)[0]);
  const text = at => decoder.decode(bytes(...about().slice(at, at + 2)));
  const labels = Array.from({ length: count }, (_, index) => (c.label(index), text(0)));
  const encode = (text, i) => {
    if (typeof text == "string") return coder.encode(text);
    throw new TypeError(`text ${i + 1} is of type ${text?.constructor?.name ?? text}, not a string`);
  };
  const write = texts => {
    const coded = texts.map(encode);
    let at = place(c.input(coded.reduce((sum, text) => sum + text.length, 0)));
    for (const text of coded) bytes(at, text.length).set(text), at += text.length;
    return coded;
  };
  const best = values => values.indexOf(Math.max(...values));
  const answer = texts => {
    const [first, second] = write(texts);
    if (tags || texts.length != 1 + pair) check(16);
    check(c.predict(first.length, second?.length));
    return [...floats(about()[0], outputs)];
  };
  const choose = probabilities => {
    if (!count) return { score: probabilities[0] };
    if (multilabel) return { labels: labels.filter((_, index) => probabilities[index] >= 0.5), probabilities };
    const none = rejects && Math.max(...probabilities) < threshold;
    return { label: none ? null : labels[best(probabilities)], probabilities };
  };
  return {
    name: text(12), task: text(15), labels, pair: !!pair, tags: !!tags, multilabel: !!multilabel,
    rejects: !!rejects, temperature, threshold: threshold < 0 ? null : threshold,
    predict: (...texts) => choose(answer(texts)),
    tag: text => {
      if (!tags) check(16);
      const [coded] = write([text]);
      check(c.tag(coded.length));
      const [at, total] = about(), words = new Uint32Array(c.memory.buffer, at, 3 * total);
      return Array.from({ length: total }, (_, i) => {
        const [start, length, label] = words.subarray(3 * i);
        const logits = floats(at + 12 * total + 4 * outputs * i, outputs), most = Math.max(...logits);
        const powers = Array.from(logits, value => Math.exp((value - most) / temperature));
        const sum = powers.reduce((a, b) => a + b);
        return { word: decoder.decode(coded.subarray(start, start + length)), label: labels[label],
          probabilities: powers.map(p => p / sum) };
      }).filter(tag => tag.word);
    },
    explain: (...texts) => {
      const values = answer(texts), of = best(values);
      return texts.map((text, place) => {
        const words = text.split(/\s+/u).filter(Boolean);
        return words.slice(0, 256).map((word, index) => {
          const rest = words.toSpliced(index, 1).join(" ");
          return { word, drop: values[of] - answer(texts.with(place, rest))[of] };
        });
      });
    },
  };
};
