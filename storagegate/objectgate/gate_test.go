package objectgate_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate"
	"github.com/leased-project/leased/storagegate/gatetest"
	"github.com/leased-project/leased/storagegate/objectgate"
)

const orders = fencing.Resource("orders/42")

func TestGate(t *testing.T) {
	gatetest.Run(t, func(t *testing.T) gatetest.Opener {
		name := bucket(t)
		return func(t testing.TB, rule fencing.Rule) gatetest.Subject {
			gate := objectgate.New(client(t, nil), name, rule)
			return gatetest.Adapt(gate,
				func(_ context.Context, tx *objectgate.Tx, _ fencing.Resource, value string) error {
					tx.Write([]byte(value))
					return nil
				},
				func(ctx context.Context, resource fencing.Resource) (string, error) {
					data, err := gate.Read(ctx, resource)
					return string(data), err
				})
		}
	})
}

func write(t *testing.T, gate *objectgate.Gate, token fencing.Token, value string) error {
	t.Helper()
	return gate.Do(t.Context(), orders, token, func(tx *objectgate.Tx) error { tx.Write([]byte(value)); return nil })
}

func holds(t *testing.T, gate *objectgate.Gate, mark fencing.Token, value string) {
	t.Helper()
	got, err := gate.Mark(t.Context(), orders)
	require.NoError(t, err)
	require.Equal(t, mark, got)
	data, err := gate.Read(t.Context(), orders)
	require.NoError(t, err)
	require.Equal(t, value, string(data))
}

// Enter does not change the data, and equal content has an equal ETag. A writer
// that read the ETag before must be refused nevertheless.
func TestEnterChangesTheETag(t *testing.T) {
	name := bucket(t)
	gate := objectgate.New(client(t, nil), name, fencing.Rule{})
	require.NoError(t, write(t, gate, 1, "data"))
	err := gate.Do(t.Context(), orders, 1, func(tx *objectgate.Tx) error {
		require.NoError(t, gate.Enter(t.Context(), orders, 2)) // between check and write
		tx.Write([]byte("stale"))
		return nil
	})
	require.ErrorIs(t, err, fencing.ErrStale)
	holds(t, gate, 2, "data")
}

func TestReadModifyWrite(t *testing.T) {
	name := bucket(t)
	gate := objectgate.New(client(t, nil), name, fencing.Rule{})
	for range 3 {
		require.NoError(t, gate.Do(t.Context(), orders, 1, func(tx *objectgate.Tx) error {
			data, err := tx.Read()
			tx.Write(append(data, 'x'))
			return err
		}))
	}
	require.NoError(t, gate.Do(t.Context(), orders, 2, func(*objectgate.Tx) error {
		return nil
	}), "a write without data raises the mark")
	holds(t, gate, 2, "xxx")
}

// Read must not return empty data if the store refuses the request.
func TestReadReturnsStorageErrors(t *testing.T) {
	name := bucket(t)
	require.NoError(t, write(t, objectgate.New(client(t, nil), name, fencing.Rule{}), 1, "data"))
	denied := objectgate.New(client(t, &faultyWire{denyGet: true}), name, fencing.Rule{})
	data, err := denied.Read(t.Context(), orders)
	require.ErrorContains(t, err, "AccessDenied")
	require.ErrorContains(t, err, objectgate.Key(orders))
	require.Nil(t, data)
}

// A write whose read failed would replace data that it has not seen. It must fail
// even if its function ignores the error.
func TestWriteThatIgnoresAReadErrorFails(t *testing.T) {
	name := bucket(t)
	sound := objectgate.New(client(t, nil), name, fencing.Rule{})
	require.NoError(t, write(t, sound, 1, "data"))
	wire := &faultyWire{denyGet: true}
	gate := objectgate.New(client(t, wire), name, fencing.Rule{})
	err := gate.Do(t.Context(), orders, 2, func(tx *objectgate.Tx) error {
		old, _ := tx.Read()
		tx.Write(append(old, " and more"...))
		return nil
	})
	require.ErrorContains(t, err, "AccessDenied")
	require.NotErrorIs(t, err, storagegate.ErrUncertain)
	require.Zero(t, wire.puts)
	require.Zero(t, gate.Counts())
	holds(t, sound, 1, "data")
}

// A missing bucket is an error, not a reason to retry.
func TestMissingBucketIsAnError(t *testing.T) {
	gate := objectgate.New(client(t, nil), "no-such-bucket", fencing.Rule{})
	for _, err := range []error{write(t, gate, 1, "data"), gate.Enter(t.Context(), orders, 1)} {
		require.ErrorContains(t, err, "NoSuchBucket")
		require.NotErrorIs(t, err, storagegate.ErrUncertain)
	}
	require.Zero(t, gate.Counts())
}

func TestKey(t *testing.T) {
	require.Equal(t, "orders%2f42", objectgate.Key(orders))
	require.Equal(t, "%2e.", objectgate.Key(".."))
	long := objectgate.Key(fencing.Resource(strings.Repeat("é", 256)))
	require.True(t, strings.HasPrefix(long, "~"))
	require.Len(t, long, 65)
}

func TestVerify(t *testing.T) {
	name := bucket(t)
	for range 2 { // the second time the object exists
		require.NoError(t, objectgate.New(client(t, nil), name, fencing.Rule{}).Verify(t.Context(), "probe"))
	}
	for _, ignored := range []string{"If-Match", "If-None-Match"} {
		wire := &faultyWire{onPut: func(_ int, r *http.Request, forward func() (*http.Response, error)) (*http.Response,
			error) {
			if r.Header.Get(ignored) == "" {
				return forward()
			}
			// A store that ignores the condition and writes.
			return &http.Response{StatusCode: 200, Status: "200 OK", Header: http.Header{"Etag": {`"x"`}}, Body: http.NoBody,
				Request: r}, nil
		}}
		err := objectgate.New(client(t, wire), name, fencing.Rule{}).Verify(t.Context(), "probe")
		require.ErrorContains(t, err, "ignores", ignored)
	}
}

// Replicas that start together verify with the same object.
func TestVerifyTogether(t *testing.T) {
	name := bucket(t)
	for range 5 {
		const replicas = 3
		errs := make(chan error, replicas)
		for range replicas {
			gate := objectgate.New(client(t, nil), name, fencing.Rule{}, objectgate.Prefix("orders/"))
			go func() { errs <- gate.Verify(t.Context(), "probe") }()
		}
		for range replicas {
			require.NoError(t, <-errs)
		}
	}
	_, err := client(t, nil).HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: &name, Key: aws.String("orders/probe")})
	require.NoError(t, err, "the probe is where the gate has its objects")
}

// A store that refuses a write during another one with 409 enforces conditions.
func TestVerifyAcceptsAConflict(t *testing.T) {
	name := bucket(t)
	wire := &faultyWire{onPut: func(n int, r *http.Request, forward func() (*http.Response, error)) (*http.Response,
		error) {
		if n == 1 || n == 3 { // the write of the second attempt, and its If-None-Match
			return forward()
		}
		return &http.Response{StatusCode: 409, Status: "409 Conflict", Body: http.NoBody, Request: r}, nil
	}}
	require.NoError(t, objectgate.New(client(t, wire), name, fencing.Rule{}).Verify(t.Context(), "probe"))
	require.Equal(t, 4, wire.puts)
}

var _ storagegate.Gate[*objectgate.Tx] = (*objectgate.Gate)(nil)
