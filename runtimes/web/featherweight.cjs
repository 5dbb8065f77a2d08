// For require(): the functions of featherweight.js.
exports.load = async (...parameters) => (await import("./featherweight.js")).load(...parameters);
