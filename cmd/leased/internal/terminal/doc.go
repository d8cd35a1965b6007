// Package terminal draws live tables on a terminal and reads single keys.
//
// It needs a Unix terminal that understands the usual ANSI sequences. On other systems
// and outputs [Open] returns [ErrNoTerminal], and the caller prints plain lines.
//
// The nouns, in reading order: [Clean] and [Fit], which make a text safe and fit it into
// a width; [Column] and [Table], which lay out rows; [Line] and [Style], a drawn line;
// [Screen], the terminal itself; [Key], what the user typed.
package terminal
