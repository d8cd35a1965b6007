package terminal

import "unicode/utf8"

// Key is what the user typed: a character, or one of the constants.
type Key rune

// The keys that are not characters.
const (
	Up Key = -1 - iota
	Down
	PageUp
	PageDown
	Home
	End
	Escape
	Enter
	Backspace
	Resized // the size of the terminal has changed, or the program continues
	Closed  // the terminal is gone
)

var sequences = map[string]Key{
	"[A": Up, "OA": Up, "[B": Down, "OB": Down, "[5~": PageUp, "[6~": PageDown,
	"[H": Home, "OH": Home, "[1~": Home, "[F": End, "OF": End, "[4~": End,
}

// decode returns the keys of one read. Terminals send the sequence of a key in one
// piece, so an escape character at the end is the key itself.
func decode(input []byte) (keys []Key) {
	for len(input) > 0 {
		if input[0] == 0x1b {
			key, size := decodeSequence(input[1:])
			if key != 0 {
				keys = append(keys, key)
			}
			input = input[1+size:]
			continue
		}
		r, size := utf8.DecodeRune(input)
		input = input[size:]
		switch {
		case r == '\r' || r == '\n':
			keys = append(keys, Enter)
		case r == 0x7f || r == '\b':
			keys = append(keys, Backspace)
		case r >= ' ' && r != utf8.RuneError:
			keys = append(keys, Key(r))
		}
	}
	return keys
}

// decodeSequence returns the key of a sequence without its escape character, 0 if it is
// unknown, and the size of the sequence.
func decodeSequence(rest []byte) (Key, int) {
	if len(rest) == 0 || rest[0] != '[' && rest[0] != 'O' {
		return Escape, 0
	}
	for i := 1; i < len(rest); i++ {
		if rest[i] >= 0x40 && rest[i] <= 0x7e {
			return sequences[string(rest[:i+1])], i + 1
		}
	}
	return 0, len(rest)
}
