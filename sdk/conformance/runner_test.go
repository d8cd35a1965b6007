//go:build unix

package conformance

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease"
)

// call tells a client what to do.
type call struct {
	ID         int      `json:"id"`
	Do         string   `json:"do"` // acquire, release, state, lost
	Client     string   `json:"client"`
	Endpoints  []string `json:"endpoints"` // URLs
	Secret     string   `json:"secret"`
	CA         string   `json:"ca"`
	TTLMillis  int      `json:"ttlMillis"`
	Lock       string   `json:"lock"`
	Lease      string   `json:"lease"`
	WaitMillis int      `json:"waitMillis"`
}

// result is what it did: granted, held, refused, released, lost, or an error.
type result struct {
	ID     int    `json:"id"`
	Result string `json:"result"`
	Token  uint64 `json:"token"`
	Mode   string `json:"mode"`
}

type runner interface{ do(call) result }

// program is a runner in another language.
type program struct {
	mu      sync.Mutex
	in      io.Writer
	last    int
	waiting map[int]chan result
}

func startProgram(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &program{in: in, waiting: map[int]chan result{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var r result
			if json.Unmarshal(lines.Bytes(), &r) == nil {
				p.mu.Lock()
				p.waiting[r.ID] <- r
				p.mu.Unlock()
			}
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for id, c := range p.waiting {
			select {
			case c <- result{ID: id, Result: "the program has ended"}:
			default:
			}
		}
		p.in = nil
	}()
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		<-done
		_ = cmd.Wait()
	})
	return p
}

func (p *program) do(c call) result {
	p.mu.Lock()
	if p.in == nil {
		p.mu.Unlock()
		return result{Result: "the program has ended"}
	}
	p.last++
	c.ID = p.last
	answer := make(chan result, 1)
	p.waiting[c.ID] = answer
	line, _ := json.Marshal(c)
	_, err := p.in.Write(append(line, '\n'))
	p.mu.Unlock()
	if err != nil {
		return result{Result: err.Error()}
	}
	return <-answer
}

// goClient is the runner of the Go client.
type goClient struct {
	mu      sync.Mutex
	clients map[string]*lease.Client
	leases  map[string]*lease.Lease
}

func (g *goClient) do(c call) result {
	ctx := context.Background()
	g.mu.Lock()
	held := g.leases[c.Lease]
	g.mu.Unlock()
	switch c.Do {
	case "acquire":
		granted, err := g.acquire(ctx, c)
		if err != nil {
			return result{Result: kindOf(err)}
		}
		g.mu.Lock()
		g.leases[c.Lease] = granted
		g.mu.Unlock()
		return result{Result: "granted", Token: uint64(granted.Token()), Mode: granted.Mode().String()}
	case "release":
		if err := held.Release(ctx); err != nil && !errors.Is(err, lease.ErrNotHeld) && !errors.Is(err, lease.ErrReleased) {
			return result{Result: err.Error()}
		}
		return result{Result: "released"}
	case "lost":
		<-held.Done()
		return result{Result: "lost"}
	}
	if held.Err() != nil {
		return result{Result: "lost"}
	}
	return result{Result: "held"}
}

func (g *goClient) acquire(ctx context.Context, c call) (*lease.Lease, error) {
	g.mu.Lock()
	key := fmt.Sprint(c.Client, c.Endpoints, c.Secret)
	known := g.clients[key]
	if known == nil {
		dialed, err := dial(ctx, c)
		if err != nil {
			g.mu.Unlock()
			return nil, err
		}
		known = dialed
		g.clients[key] = known
	}
	g.mu.Unlock()
	options := []lease.AcquireOption{lease.WithTTL(time.Duration(c.TTLMillis) * time.Millisecond)}
	if c.WaitMillis == 0 {
		return known.TryAcquire(ctx, fencing.Resource(c.Lock), options...)
	}
	options = append(options, lease.WithWaitLimit(time.Duration(c.WaitMillis)*time.Millisecond))
	return known.Acquire(ctx, fencing.Resource(c.Lock), options...)
}

func dial(ctx context.Context, c call) (*lease.Client, error) {
	var options []client.Option
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		options = append(options, client.WithTLS(&tls.Config{RootCAs: pool}))
	}
	if c.Secret != "" {
		options = append(options, client.WithSecret(c.Secret))
	}
	var addresses []string
	for _, url := range c.Endpoints {
		addresses = append(addresses, url[len(scheme(url)):])
	}
	return client.Dial(ctx, addresses, options...)
}

// kindOf maps errors to the results that all clients have. A refused secret matches ErrUnavailable in Go.
func kindOf(err error) string {
	switch {
	case errors.Is(err, lease.ErrHeld):
		return "held"
	case errors.Is(err, lease.ErrLost):
		return "lost"
	case errors.Is(err, lease.ErrUncertain):
		return "uncertain: " + err.Error()
	}
	return "refused"
}
