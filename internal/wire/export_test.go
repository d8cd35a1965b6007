package wire

// Kinds is the table of errors.
var Kinds = kinds
