package peers

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// jsonTTL is longer than a measurement, so the clients of JSON APIs renew nothing.
const jsonTTL = 10 * time.Minute

// jsonClient has a keep-alive connection to one of the servers. It writes HTTP itself: an http.Client uses nearly twice
// the processor time, about 90 microseconds a pair against 49, on the processors of the servers.
type jsonClient struct {
	address, path string
	conn          net.Conn // nil before the first call, and after a failed one
	answers       *bufio.Reader
	request       []byte
}

// jsonClients returns a function that makes clients of one server after the other.
func jsonClients(endpoints []string, path string) func() *jsonClient {
	var made atomic.Uint64
	return func() *jsonClient {
		return &jsonClient{address: endpoints[made.Add(1)%uint64(len(endpoints))], path: path}
	}
}

// Close implements [load.Client].
func (c *jsonClient) Close(context.Context) error {
	if c.conn == nil {
		return nil
	}
	return c.conn.Close()
}

// post sends a request and decodes the answer, unless that is nil.
func (c *jsonClient) post(ctx context.Context, call string, body, answer any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	response, data, err := c.exchange(ctx, call, data)
	switch {
	case err != nil:
		return err
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %s: %s", call, response.Status, data)
	case answer == nil:
		return nil
	}
	return json.Unmarshal(data, answer)
}

// exchange sends a request and returns the answer.
func (c *jsonClient) exchange(ctx context.Context, call string, body []byte) (response *http.Response, answer []byte,
	err error) {
	if c.conn == nil {
		if c.conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", c.address); err != nil {
			return nil, nil, err
		}
		c.answers = bufio.NewReader(c.conn)
	}
	conn := c.conn
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	defer func() {
		if err != nil {
			conn.Close()
			c.conn = nil
		}
	}()
	c.request = fmt.Appendf(c.request[:0], "POST %s%s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", c.path, call, c.address, len(body), body)
	if _, err = conn.Write(c.request); err != nil {
		return nil, nil, err
	}
	if response, err = http.ReadResponse(c.answers, nil); err != nil {
		return nil, nil, err
	}
	answer, err = io.ReadAll(response.Body)
	return response, answer, err
}
