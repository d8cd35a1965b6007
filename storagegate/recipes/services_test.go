package recipes_test

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"
	"go.etcd.io/bbolt"
	"google.golang.org/grpc"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/boltgate"
	"github.com/leased-project/leased/storagegate/callgate"
	"github.com/leased-project/leased/storagegate/connectgate"
	"github.com/leased-project/leased/storagegate/grpcgate"
	"github.com/leased-project/leased/storagegate/httpgate"
	"github.com/leased-project/leased/storagegate/recipes/testdata/shopv1"
	"github.com/leased-project/leased/storagegate/recipes/testdata/shopv1/shopv1connect"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

func withHTTP(mux *http.ServeMux, handler http.Handler) (func() error, error) {
	resource, err := httpgate.FromPath("/orders/{id}/{rest...}=orders/{id}")
	if err != nil {
		return nil, err
	}
	db, err := bbolt.Open("marks.db", 0o600, nil)
	if err != nil {
		return nil, err
	}
	marks := callgate.Stored(boltgate.New(db, fencing.Rule{})) // or callgate.Memory(rule), which a restart loses
	gate, err := httpgate.New(marks, resource, httpgate.Wait(10*time.Second))
	if err != nil {
		return nil, err
	}
	mux.Handle("/orders/", gate.Handler(handler))
	return db.Close, nil
}

func callHTTP(ctx context.Context, url string, token fencing.Token) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader(`{"status":"paid"}`))
	if err != nil {
		return err
	}
	httpgate.SetToken(request, token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return httpgate.Check(response) // a *fencing.StaleError if it was refused
}

func insideTheHandler(w http.ResponseWriter, r *http.Request, gate *sqlgate.Gate, resource fencing.Resource) {
	token, err := httpgate.Token(r)
	if err == nil {
		err = gate.Do(r.Context(), resource, token, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(r.Context(), `UPDATE accounts SET balance = balance - 10 WHERE id = 7`)
			return err
		})
	}
	if err != nil {
		httpgate.WriteError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func withGRPC(marks callgate.Marks) (*grpc.Server, error) {
	gate, err := grpcgate.New(marks, func(ctx context.Context, method string, message any) (fencing.Resource, error) {
		switch m := message.(type) {
		case *shopv1.PutOrderRequest:
			return fencing.Resource("orders/" + m.Id), nil
		default:
			return "", callgate.ErrUngated // reads
		}
	})
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(gate.Unary()), grpc.StreamInterceptor(gate.Stream()))
	return server, nil
}

func callGRPC(ctx context.Context, orders shopv1.OrdersClient, token fencing.Token,
	request *shopv1.PutOrderRequest) error {
	_, err := orders.PutOrder(grpcgate.WithToken(ctx, token), request)
	if refusal := grpcgate.Refusal(err); errors.Is(refusal, fencing.ErrStale) {
		return refusal // the lease is lost: stop
	}
	return err
}

func withConnect(mux *http.ServeMux, marks callgate.Marks, service shopv1connect.OrdersHandler) error {
	resource := func(ctx context.Context, spec connect.Spec, message any) (fencing.Resource, error) {
		switch m := message.(type) {
		case *shopv1.PutOrderRequest:
			return fencing.Resource("orders/" + m.Id), nil
		default:
			return "", callgate.ErrUngated // reads
		}
	}
	gate, err := connectgate.New(marks, resource)
	if err != nil {
		return err
	}
	mux.Handle(shopv1connect.NewOrdersHandler(service, connect.WithInterceptors(gate)))
	return nil
}

func callConnect(ctx context.Context, url string, token fencing.Token, request *shopv1.PutOrderRequest) error {
	client := shopv1connect.NewOrdersClient(http.DefaultClient, url, connect.WithInterceptors(connectgate.Client()))
	_, err := client.PutOrder(connectgate.WithToken(ctx, token), connect.NewRequest(request))
	return err
}

var _, _, _, _, _ = insideTheHandler, withGRPC, callGRPC, withConnect, callConnect // compiled only
