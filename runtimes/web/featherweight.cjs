// For require(): the functions of featherweight.js.
exports.load = async (...given) => (await import("./featherweight.js")).load(...given);
