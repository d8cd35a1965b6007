//go:build linux

package abuse

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/leased-project/leased/internal/secret"
)

// leastCalls is the number of calls that a bystander must complete.
const leastCalls = 20

// bystander is a client that acquires and releases a lock of its own, as fast as it
// is served, while others attack the server.
type bystander struct {
	server *server
	client *http.Client
	stop   chan struct{}
	done   chan struct{}
	times  []time.Duration
	failed string // the first answer that was not a success
}

// bystander starts one.
func (s *server) bystander() *bystander {
	b := &bystander{server: s, client: &http.Client{Transport: &http.Transport{}}, stop: make(chan struct{}),
		done: make(chan struct{})}
	go b.run()
	return b
}

func (b *bystander) run() {
	defer close(b.done)
	for n := 0; b.failed == ""; n++ {
		select {
		case <-b.stop:
			if n >= leastCalls {
				return
			}
		default:
		}
		began := time.Now()
		token := b.call("/v1/acquire", `{"resource":"bystander","ttl":"1m"}`)
		b.call("/v1/release", `{"resource":"bystander",`+token+`}`)
		b.times = append(b.times, time.Since(began))
	}
}

// call makes a call, and returns the field of the token.
func (b *bystander) call(path, body string) string {
	request, err := http.NewRequest(http.MethodPost, "http://"+b.server.api+path, strings.NewReader(body))
	if err == nil {
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", secret.Header(b.server.secret))
		var response *http.Response
		if response, err = b.client.Do(request); err == nil {
			text, _ := io.ReadAll(response.Body)
			response.Body.Close()
			if response.StatusCode != http.StatusOK {
				err = fmt.Errorf("%s", text)
			}
			_, token, _ := strings.Cut(string(text), `"token":`)
			token, _, _ = strings.Cut(token, ",")
			if err == nil {
				return `"token":` + token
			}
		}
	}
	b.failed = fmt.Sprintf("%s %s: %v", path, body, err)
	return ""
}

// end stops the bystander, fails the test if a call of it failed, and describes how
// it was served.
func (b *bystander) end() string {
	t := b.server.t
	t.Helper()
	close(b.stop)
	<-b.done
	b.client.CloseIdleConnections()
	if b.failed != "" {
		t.Fatalf("another client was not served: %s", b.failed)
	}
	slices.Sort(b.times)
	at := func(percent int) time.Duration {
		return b.times[(len(b.times)-1)*percent/100].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("other client: %d leases, p50 %v, p99 %v", len(b.times), at(50), at(99))
}
