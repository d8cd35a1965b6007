// Package golden compares bytes with files that were written by version 1 of a format. Later
// builds must read these files, and write the same bytes.
//
// It does not decode anything: the test of each format does. In reading order: [Text],
// [Hex], [Read].
package golden
