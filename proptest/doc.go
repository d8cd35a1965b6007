// Package proptest holds the promises of leased against its code.
//
// What it does not show: that there are no bugs. It shows that those which a
// known way of being wrong would cause are found, and README.md says which
// these are, what is not looked at, and how to run one failure again.
//
// The tests here run the machine of the correctness mode beside package model,
// a second and naive version of it that shares no code with the first.
package proptest
