export declare const load: typeof import("./featherweight.js", { with: { "resolution-mode": "import" } }).load;
