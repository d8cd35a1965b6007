// Package lockview shows locks to people: as live screens, and as lines of text.
//
// It draws nothing and calls no service. It turns messages of the API into lines, and
// keys into requests, so tests need no terminal.
//
// The nouns, in reading order: [Age], a duration for people; [View], the state of a live
// screen; [Action], what a key asks for; [Sections], one screen of text for scripts;
// [Changes], the lines for outputs that are not a terminal.
package lockview
