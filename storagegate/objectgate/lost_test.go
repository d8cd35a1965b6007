package objectgate_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/objectgate"
)

type forward = func() (*http.Response, error)

// lossy returns a gate behind a faulty network and one behind a sound network.
func lossy(t *testing.T, onPut func(n int, r *http.Request, forward forward) (*http.Response, error)) (faulty,
	sound *objectgate.Gate, wire *faultyWire) {
	t.Helper()
	name := bucket(t)
	wire = &faultyWire{onPut: onPut}
	return objectgate.New(client(t, wire), name, fencing.Rule{}), objectgate.New(client(t, nil), name, fencing.Rule{}),
		wire
}

func drop(resp *http.Response, err error) (*http.Response, error) {
	if err == nil {
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	return nil, errLine
}

func TestLostResponseIsFoundInTheObject(t *testing.T) {
	for name, answer := range map[string]func(*http.Response, error) (*http.Response, error){
		"broken connection": drop,
		"status 500": func(resp *http.Response, err error) (*http.Response, error) {
			drop(resp, err)
			return &http.Response{StatusCode: 500, Status: "500", Header: http.Header{},
				Body: io.NopCloser(strings.NewReader("<Error><Code>InternalError</Code></Error>"))}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			gate, sound, wire := lossy(t, func(_ int, _ *http.Request, forward forward) (*http.Response, error) {
				return answer(forward())
			})
			require.NoError(t, write(t, gate, 1, "one"))
			require.NoError(t, write(t, gate, 2, "two"))
			require.NoError(t, gate.Enter(t.Context(), orders, 3))
			require.Equal(t, 3, wire.puts, "each write must be sent once")
			holds(t, sound, 3, "two")
			require.Equal(t, storagegate.Counts{Admitted: 3}, gate.Counts())
		})
	}
}

func TestLostRequestIsSentAgain(t *testing.T) {
	gate, sound, _ := lossy(t, func(n int, _ *http.Request, forward forward) (*http.Response, error) {
		if n%2 == 0 {
			return nil, errLine
		}
		return forward()
	})
	require.NoError(t, write(t, gate, 1, "one"))
	require.NoError(t, write(t, gate, 2, "two"))
	holds(t, sound, 2, "two")
}

// A delayed request must not be executed after its caller got the outcome.
func TestDelayedRequestIsNotExecutedLater(t *testing.T) {
	for name, before := range map[string]bool{"first write": false, "over an object": true} {
		t.Run(name, func(t *testing.T) {
			var held forward
			gate, sound, _ := lossy(t, func(n int, r *http.Request, forward forward) (*http.Response, error) {
				if n > 0 {
					return forward()
				}
				body, err := io.ReadAll(r.Body)
				require.NoError(t, err)
				late := r.Clone(context.WithoutCancel(r.Context()))
				late.Body = io.NopCloser(strings.NewReader(string(body)))
				held = func() (*http.Response, error) { return http.DefaultTransport.RoundTrip(late) }
				return nil, errLine
			})
			if before {
				require.NoError(t, write(t, sound, 1, "before"))
			}
			require.NoError(t, write(t, gate, 1, "old"))
			require.NoError(t, write(t, sound, 2, "new"))
			resp, err := held()
			require.NoError(t, err)
			resp.Body.Close()
			require.Equal(t, http.StatusPreconditionFailed, resp.StatusCode)
			holds(t, sound, 2, "new")
		})
	}
}

// The write was executed, its response was lost, and a newer holder wrote before
// the gate checked the outcome. The gate must not report "nothing was written".
func TestOverwrittenWriteIsFound(t *testing.T) {
	var sound *objectgate.Gate
	gate, sound, _ := lossy(t, func(n int, _ *http.Request, forward forward) (*http.Response, error) {
		resp, err := drop(forward())
		require.NoError(t, write(t, sound, 2, "new"))
		return resp, err
	})
	require.NoError(t, write(t, gate, 1, "old"))
	holds(t, sound, 2, "new")
}

// The write was not executed, and a newer holder wrote instead.
func TestLostWriteIsRefusedAfterANewerOne(t *testing.T) {
	for name, before := range map[string]bool{"first write": false, "over an object": true} {
		t.Run(name, func(t *testing.T) {
			var sound *objectgate.Gate
			gate, sound, _ := lossy(t, func(int, *http.Request, forward) (*http.Response, error) {
				require.NoError(t, write(t, sound, 2, "new"))
				return nil, errLine
			})
			if before {
				require.NoError(t, write(t, sound, 1, "before"))
			}
			require.ErrorIs(t, write(t, gate, 1, "old"), fencing.ErrStale)
			holds(t, sound, 2, "new")
		})
	}
}

// Others wrote so often meanwhile that the object does not contain the nonce.
func TestWriteWithoutNonceIsUncertain(t *testing.T) {
	var sound *objectgate.Gate
	gate, sound, _ := lossy(t, func(_ int, _ *http.Request, forward forward) (*http.Response, error) {
		resp, err := drop(forward())
		for range 10 {
			require.NoError(t, write(t, sound, 2, "new"))
		}
		return resp, err
	})
	require.ErrorIs(t, write(t, gate, 1, "old"), storagegate.ErrUncertain)
	require.Zero(t, gate.Counts())
}

func TestUnreachableStoreIsUncertain(t *testing.T) {
	var wire *faultyWire
	gate, sound, wire := lossy(t, func(_ int, _ *http.Request, forward forward) (*http.Response, error) {
		wire.cut()
		return drop(forward())
	})
	require.ErrorIs(t, write(t, gate, 1, "one"), storagegate.ErrUncertain)
	holds(t, sound, 1, "one")
}

// A caller that cancels during its write gets the true outcome.
func TestCancelledDuringTheWrite(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	gate, sound, _ := lossy(t, func(_ int, _ *http.Request, forward forward) (*http.Response, error) {
		resp, err := drop(forward())
		cancel()
		return resp, err
	})
	require.NoError(t, gate.Do(ctx, orders, 1, func(tx *objectgate.Tx) error {
		tx.Write([]byte("one"))
		return nil
	}), "the write was executed")
	holds(t, sound, 1, "one")

	ctx, cancel = context.WithCancel(t.Context())
	gate, _, _ = lossy(t, func(int, *http.Request, forward) (*http.Response, error) {
		cancel()
		return nil, errLine
	})
	err := gate.Do(ctx, orders, 1, func(tx *objectgate.Tx) error { tx.Write([]byte("one")); return nil })
	require.ErrorIs(t, err, storagegate.ErrUncertain, "the request may still be on its way")
}
