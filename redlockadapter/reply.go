package redlockadapter

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/leased-project/leased/fencing"
)

// reply is the answer of a node to a request.
type reply struct {
	token fencing.Token // of an integer reply
	words []string      // of an array or a string
	err   error         // the request failed; words are empty
	// maybe: the node may have carried out a request that failed.
	maybe bool
}

// word returns the i-th word of a reply, or "".
func (r reply) word(i int) string {
	if i < len(r.words) {
		return r.words[i]
	}
	return ""
}

// redisError is an error that a server replied.
type redisError string

// Error returns what the server said.
func (e redisError) Error() string { return string(e) }

// code returns the first word, such as NOSCRIPT.
func (e redisError) code() string {
	word, _, _ := strings.Cut(string(e), " ")
	return word
}

// ends reports whether the connection must be made anew: the server has become a
// replica, loads its data, or wants another authentication.
func (e redisError) ends() bool {
	switch e.code() {
	case "READONLY", "LOADING", "MASTERDOWN", "NOAUTH", "NOPERM":
		return true
	}
	return false
}

var errProtocol = errors.New("reply does not follow the Redis protocol")

// maxBulk bounds one string of a reply.
const maxBulk = 1 << 24

// readReply reads the next reply. The error is the end of the connection; an
// error that the server replied is in the reply.
func readReply(r *bufio.Reader) (reply, error) {
	kind, rest, err := readLine(r)
	if err != nil {
		return reply{}, err
	}
	switch kind {
	case '-':
		return reply{err: redisError(rest)}, nil
	case ':':
		n, err := strconv.ParseInt(string(rest), 10, 64)
		if err != nil || n < 0 {
			return reply{}, fmt.Errorf("%w: integer %q", errProtocol, rest)
		}
		return reply{token: fencing.Token(n)}, nil
	case '+':
		return reply{words: []string{string(rest)}}, nil
	case '$':
		text, err := readBulk(r, rest)
		return reply{words: []string{text}}, err
	case '*':
		n, err := strconv.Atoi(string(rest))
		if err != nil || n > maxBulk {
			return reply{}, fmt.Errorf("%w: array of %q", errProtocol, rest)
		}
		words := make([]string, 0, max(n, 0))
		for range n {
			word, err := readWord(r)
			if err != nil {
				return reply{}, err
			}
			words = append(words, word)
		}
		return reply{words: words}, nil
	}
	return reply{}, fmt.Errorf("%w: %q", errProtocol, rest)
}

// readLine reads a line and splits its first byte off.
func readLine(r *bufio.Reader) (kind byte, rest []byte, err error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return 0, nil, err
	}
	if len(line) < 3 {
		return 0, nil, errProtocol
	}
	return line[0], line[1 : len(line)-2], nil
}

// readWord reads an element of an array: a string or an integer.
func readWord(r *bufio.Reader) (string, error) {
	kind, rest, err := readLine(r)
	switch {
	case err != nil:
		return "", err
	case kind == ':' || kind == '+':
		return string(rest), nil
	case kind == '$':
		return readBulk(r, rest)
	}
	return "", fmt.Errorf("%w: element %q", errProtocol, rest)
}

func readBulk(r *bufio.Reader, length []byte) (string, error) {
	size, err := strconv.Atoi(string(length))
	if err != nil || size > maxBulk {
		return "", fmt.Errorf("%w: string of %q bytes", errProtocol, length)
	}
	if size < 0 {
		return "", nil // nil
	}
	text := make([]byte, size+2)
	if _, err := io.ReadFull(r, text); err != nil {
		return "", err
	}
	return string(text[:size]), nil
}
