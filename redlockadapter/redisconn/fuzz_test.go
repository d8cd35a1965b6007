package redisconn

import (
	"bufio"
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzReply checks that replies of a server, which may be broken or hostile, are read
// without a panic and in memory that the bytes received justify, and that a reply of
// strings is read as it was sent.
func FuzzReply(f *testing.F) {
	for _, text := range []string{"", "+OK\r\n", "-ERR x\r\n", ":7\r\n", ":-7\r\n", "$3\r\nabc\r\n", "$-1\r\n", "$3\r\nabcde", "*2\r\n$1\r\na\r\n:5\r\n", "*-1\r\n",
		"*16777216\r\n", "$16777216\r\n", "*1\r\n*1\r\n", "\r\n", "+\n", "$99999999999\r\n", "*1\r\n$2\r\nabX\r\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := bufio.NewReader(bytes.NewReader(data))
		for {
			reply, err := readReply(r)
			if err != nil {
				break
			}
			_, _ = reply.Word(0), reply.Word(100)
			if len(reply.Words) > len(data) {
				t.Fatalf("%d words of %d bytes", len(reply.Words), len(data))
			}
		}
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20+64*uint64(len(data)) {
			t.Fatalf("%d bytes received, %d bytes allocated", len(data), used)
		}
		words := strings.Split(string(data), "\n")
		var sent strings.Builder
		fmt.Fprintf(&sent, "*%d\r\n", len(words))
		for _, w := range words {
			fmt.Fprintf(&sent, "$%d\r\n%s\r\n", len(w), w)
		}
		reply, err := readReply(bufio.NewReader(strings.NewReader(sent.String())))
		require.NoError(t, err)
		require.Equal(t, words, reply.Words)
		_ = parseInfo(string(data)).check("a")
	})
}
