package redisconn

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Reply is the answer of a server to a request.
type Reply struct {
	Int   int64    // of an integer reply
	Words []string // of an array or a string; nil for an integer
	Err   error    // why the request failed
	// MaybeExecuted: the server may have executed a request that failed.
	MaybeExecuted bool
}

// Word returns the i-th word of a reply, or "".
func (r Reply) Word(i int) string {
	if i < len(r.Words) {
		return r.Words[i]
	}
	return ""
}

// RedisError is an error reply.
type RedisError string

// Error returns the text of the server.
func (e RedisError) Error() string { return string(e) }

// Code returns the first word, such as NOSCRIPT.
func (e RedisError) Code() string {
	word, _, _ := strings.Cut(string(e), " ")
	return word
}

// endsConnection reports whether to reconnect: the server became a replica, loads its
// data, or requires another authentication.
func (e RedisError) endsConnection() bool {
	switch e.Code() {
	case "READONLY", "LOADING", "MASTERDOWN", "NOAUTH", "NOPERM":
		return true
	}
	return false
}

const (
	// maxBulk bounds one string of a reply, and the number of strings.
	maxBulk = 1 << 24
	// firstWords bounds the memory that is allocated before the strings arrive: a
	// server can announce more than it sends.
	firstWords = 64
)

// readReply reads the next reply. It returns an error only if the connection is
// unusable; an error reply is in Reply.Err.
func readReply(r *bufio.Reader) (Reply, error) {
	kind, rest, err := readLine(r)
	if err != nil {
		return Reply{}, err
	}
	switch kind {
	case '-':
		return Reply{Err: RedisError(rest)}, nil
	case ':':
		n, err := strconv.ParseInt(string(rest), 10, 64)
		if err != nil || n < 0 {
			return Reply{}, fmt.Errorf("%w: integer %q", ErrProtocol, rest)
		}
		return Reply{Int: n}, nil
	case '+':
		return Reply{Words: []string{string(rest)}}, nil
	case '$':
		text, err := readBulk(r, rest)
		return Reply{Words: []string{text}}, err
	case '*':
		n, err := strconv.Atoi(string(rest))
		if err != nil || n > maxBulk {
			return Reply{}, fmt.Errorf("%w: array of %q", ErrProtocol, rest)
		}
		words := make([]string, 0, min(max(n, 0), firstWords))
		for range n {
			word, err := readWord(r)
			if err != nil {
				return Reply{}, err
			}
			words = append(words, word)
		}
		return Reply{Words: words}, nil
	}
	return Reply{}, fmt.Errorf("%w: %q", ErrProtocol, rest)
}

// readLine reads a line and returns its first byte and the rest.
func readLine(r *bufio.Reader) (kind byte, rest []byte, err error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return 0, nil, err
	}
	if len(line) < 3 {
		return 0, nil, ErrProtocol
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
	return "", fmt.Errorf("%w: element %q", ErrProtocol, rest)
}

func readBulk(r *bufio.Reader, length []byte) (string, error) {
	size, err := strconv.Atoi(string(length))
	if err != nil || size > maxBulk {
		return "", fmt.Errorf("%w: string of %q bytes", ErrProtocol, length)
	}
	if size < 0 {
		return "", nil // a null
	}
	var text strings.Builder
	if _, err := io.CopyN(&text, r, int64(size)); err != nil {
		return "", err
	}
	end, err := r.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	if string(end) != "\r\n" {
		return "", fmt.Errorf("%w: a string that is longer than %d bytes", ErrProtocol, size)
	}
	return text.String(), nil
}
