const find = id => document.getElementById(id);
const make = (tag, properties, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};
const decode = text => Uint8Array.from(atob(text), character => character.charCodeAt(0));
const EXAMPLES = {
  single: ["a gorgeous , witty , seductive movie ."],
  pair: ["How can I learn to cook?", "What is the best way to learn cooking?"],
  mnli: ["All of the students passed the exam.", "Some students failed the exam."],
  "sts-b": ["A man is playing a guitar on a stage.", "A man plays the guitar."],
  tags: ["Mutations of the BRCA1 gene were found in patients with breast cancer , and aspirin caused headache ."],
};
const percent = value => `${(100 * value).toFixed(1)} %`;
const signed = value => `${value < 0 ? "\u2212" : "+"}${Math.abs(100 * value).toFixed(1)}`;
let model, opened, bytes, kind;

// Several passes, because browsers round their clocks.
const timed = ask => {
  const start = performance.now();
  let passes = 0;
  do { ask(); passes++; } while (performance.now() - start < 4 && passes < 50);
  return (performance.now() - start) / passes;
};

const word = (text, strength, side, note, title) => {
  const shown = make("span", { className: "word", title }, text);
  if (note) shown.append(make("small", {}, note));
  if (strength > 0.02) shown.style.background = `rgba(var(--${side}), ${(0.6 * Math.min(1, strength)).toFixed(2)})`;
  return shown;
};

// Of many labels, the most probable ones.
const MOST_LABELS = 10;
const showLabels = (labels, probabilities) => {
  const order = labels.map((_, index) => index);
  if (labels.length > MOST_LABELS) order.sort((a, b) => probabilities[b] - probabilities[a]).length = MOST_LABELS;
  find("labels").replaceChildren(...order.map(index => {
    const bar = make("div", { className: "bar" }, make("i"));
    bar.firstChild.style.width = `${100 * probabilities[index]}%`;
    bar.setAttribute("aria-hidden", "true");
    return make("div", { className: "label" }, make("span", {}, labels[index]), bar,
      make("span", { className: "number" }, percent(probabilities[index])));
  }));
};

const showTags = text => {
  const tags = model.tag(text);
  const outside = tag => tag.label == "O";
  const named = tags.filter(tag => !outside(tag));
  find("answer").textContent = !named.length ? "no words found"
    : named.map(tag => (tag.label.startsWith("I-") ? " " : "\n") + tag.word).join("").trim().split("\n").join(" \u00b7 ");
  find("labels").replaceChildren();
  find("words-title").textContent = "Each word's label";
  find("words").replaceChildren(make("div", {}, ...tags.flatMap(tag => {
    const probability = Math.max(...tag.probabilities);
    const title = model.labels.map((label, i) => `${label} ${percent(tag.probabilities[i])}`).join(", ");
    return [word(tag.word, outside(tag) ? 0 : probability, "for", outside(tag) ? "" : tag.label, title), " "];
  })));
  find("legend").textContent = "B- begins a name, I- goes on with it. Words and signs are read as they are separated by spaces.";
};

const showAnswer = texts => {
  const answer = model.predict(...texts), drops = model.explain(...texts);
  // The file's scores are from 0 to 1; those of its task may have another range.
  const [low, high] = opened.range ?? [0, 1];
  find("answer").textContent = "score" in answer ? (low + (high - low) * answer.score).toFixed(2)
    : (answer.labels?.join(", ") ?? answer.label) || "none of these";
  showLabels(answer.probabilities ? model.labels : [], answer.probabilities);
  const most = Math.max(0.02, ...drops.flat().map(part => Math.abs(part.drop)));
  const unit = answer.probabilities ? signed : value => (value < 0 ? "\u2212" : "+") + Math.abs((high - low) * value).toFixed(2);
  const title = answer.probabilities ? "percentage points of the answer's probability" : "of the score";
  find("words-title").textContent = "Which words mattered";
  find("words").replaceChildren(...drops.map(words => make("div", {}, ...words.flatMap(part => {
    const strength = Math.abs(part.drop) / most;
    return [word(part.word, strength, part.drop < 0 ? "against" : "for", strength > 0.2 ? unit(part.drop) : "",
      `${part.word}: ${unit(part.drop)} ${title}`), " "];
  }))));
  const falls = answer.probabilities ? "the probability of the answer, in percentage points," : "the score";
  find("legend").textContent = `How far ${falls} falls without the word. Words with a minus speak against the answer.`;
};

const show = () => {
  if (!model) return;
  const texts = model.pair ? [find("first").value, find("second").value] : [find("first").value];
  const empty = !texts.some(text => text.trim());
  find("explanation").hidden = empty;
  if (empty) {
    find("answer").textContent = "Type a text.";
    find("labels").replaceChildren();
    find("facts").textContent = size();
    return;
  }
  try {
    const milliseconds = timed(() => (model.tags ? model.tag(texts[0]) : model.predict(...texts)));
    if (model.tags) showTags(texts[0]);
    else showAnswer(texts);
    find("facts").textContent = `${size()} An answer to this text takes ${milliseconds.toPrecision(2)} ms.`;
    find("problem").hidden = true;
  } catch (error) {
    complain(error);
  }
};

const size = () => `${opened.name} (task ${model.task}): ${bytes.toLocaleString("en")} bytes. `
  + `The program that reads it: ${decodedModule.length.toLocaleString("en")} bytes.`;

const complain = (error, name) => {
  find("problem").textContent = name ? `${name}: ${error.message}` : error.message;
  find("problem").hidden = false;
};

const decodedModule = decode(MODULE), embedded = WebAssembly.compile(decodedModule);

const list = () => {
  const groups = new Map();
  MODELS.forEach((entry, value) => {
    entry.data ??= decode(entry.file);
    const label = entry.group ?? "Your files", shown = `${entry.title ?? entry.name}, ${Math.round(entry.data.length / 1000)} KB`;
    if (!groups.has(label)) groups.set(label, make("optgroup", { label }));
    groups.get(label).append(make("option", { value }, shown));
  });
  find("model").replaceChildren(...groups.values());
};

// What a file without a card says about itself.
const described = () => {
  const inside = model.labels.filter(label => label != "O");
  const named = model.tags ? [...new Set(inside.map(label => label.slice(2)))] : model.labels;
  const shown = named.slice(0, 20).join(", ") + (named.length > 20 ? ` and ${named.length - 20} others` : "");
  if (model.tags) return `Finds words of these kinds: ${shown}.`;
  if (!model.labels.length) {
    return "Gives a number from 0 to 1: 0 is the lowest of its training data, and 1 the highest. The file does not say which these are.";
  }
  return `${model.multilabel ? "Any of these labels" : "One of these labels"}: ${shown}.`;
};

// A file that cannot be read is not added to the list: the chosen model is always the one that answers.
const open = async entry => {
  try {
    model = await load(entry.data, embedded);
  } catch (error) {
    find("model").value = MODELS.indexOf(opened);
    return complain(error, entry.name);
  }
  opened = entry;
  bytes = entry.data.length;
  if (!MODELS.includes(entry)) {
    MODELS.push(entry);
    list();
  }
  find("model").value = MODELS.indexOf(entry);
  find("problem").hidden = true;
  find("question").textContent = entry.question ?? described();
  find("pair").hidden = !model.pair;
  find("first-label").textContent = model.pair ? "First text" : "Text";
  const next = model.task in EXAMPLES ? model.task : model.tags ? "tags" : model.pair ? "pair" : "single";
  if (next != kind) {
    kind = next;
    [find("first").value, find("second").value = ""] = EXAMPLES[kind];
  }
  show();
};

const openFile = async file => {
  if (!file) return;
  let data;
  try {
    data = new Uint8Array(await file.arrayBuffer());
  } catch (error) {
    return complain(error, file.name);
  }
  await open({ name: file.name, data });
};

find("model").onchange = () => open(MODELS[find("model").value]);
find("file").onchange = event => {
  const [file] = event.target.files;
  event.target.value = ""; // so that the same file can be opened again
  return openFile(file);
};
for (const id of ["first", "second"]) find(id).oninput = show;
document.ondragover = event => {
  event.preventDefault();
  document.body.classList.add("dragged");
};
document.ondragleave = () => document.body.classList.remove("dragged");
document.ondrop = event => {
  event.preventDefault();
  document.body.classList.remove("dragged");
  return openFile(event.dataTransfer.files[0]);
};
list();
open(MODELS[0]);
