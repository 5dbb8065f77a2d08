// Answers every line of a file with the page's module and wrapper, several times; prints the best pass as JSON.
//   node web_speed.mjs MODEL.fwt TEXTS.txt PASSES wall|cpu
import { readFileSync } from "node:fs";
import { load } from "../runtimes/web/featherweight.js";

const [file, list, passes, clock] = process.argv.slice(2);
const now = () => {
  const { user, system } = process.cpuUsage();
  return clock == "cpu" ? (user + system) / 1000 : performance.now();
};
const started = now();
const model = await load(readFileSync(file));
const texts = readFileSync(list, "utf8").split("\n").filter(text => text.length);
const first = model.predict(texts[0]);
const start = now() - started;
let best = Infinity, labels = [];
for (let pass = 0; pass < Number(passes); pass++) {
  const before = now();
  labels = texts.map(text => model.predict(text).label);
  best = Math.min(best, now() - before);
}
console.log(JSON.stringify({ start, first: first.label, seconds: best / 1000, labels }));
