/** The answer to a text or a pair of texts. Which properties it has depends on the model. */
export interface Prediction {
  /** The most probable label; null for a text that the model rejects. */
  label?: string | null;
  /** The labels of at least 0.5, for a model of independent labels (`multilabel`). */
  labels?: string[];
  /** In the order of the model's labels. */
  probabilities?: number[];
  /** The score from 0 to 1, for a regression. */
  score?: number;
}

/** A word of a text, and its label. */
export interface Tag {
  word: string;
  label: string;
  /** In the order of the model's labels. */
  probabilities: number[];
}

/** A word of a text, and how far the probability of the answer, or the score, falls without it. */
export interface WordDrop {
  word: string;
  drop: number;
}

/** A packed student, in a WebAssembly memory of its own. */
export interface Model {
  /** Empty if the file has no name. */
  readonly name: string;
  readonly task: string;
  /** Empty for a regression. */
  readonly labels: string[];
  /** Whether it reads two texts. */
  readonly pair: boolean;
  /** Whether it labels words: `tag` answers, and `predict` and `explain` are refused. */
  readonly tags: boolean;
  /** Whether its labels are independent. */
  readonly multilabel: boolean;
  /** Whether it rejects texts whose most probable label is less probable than `threshold`. */
  readonly rejects: boolean;
  readonly temperature: number;
  readonly threshold: number | null;
  /** Answer a text, or two for a model of pairs. Throws a TypeError for what is not a string. */
  predict(text: string, second?: string): Prediction;
  /** Label each word of a text. */
  tag(text: string): Tag[];
  /** Return the first 256 words of each text. */
  explain(text: string, second?: string): WordDrop[][];
}

/**
 * Load the model of a packed file (.fwt). Throws an Error that says what is wrong with the file.
 *
 * @param file the bytes of the file
 * @param module featherweight.wasm; without it, the file next to this one is read or fetched once
 */
export declare const load: (
  file: ArrayBuffer | Uint8Array,
  module?: WebAssembly.Module | Promise<WebAssembly.Module>,
) => Promise<Model>;
