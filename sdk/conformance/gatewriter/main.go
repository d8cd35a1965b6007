// Command gatewriter writes once through a gate of the Go packages. The tests of the clients for
// other languages use it to show that writers in all languages refuse each other's stale tokens.
//
//	gatewriter redis ADDRESS RESOURCE TOKEN
//	gatewriter file FOLDER RESOURCE TOKEN
//	gatewriter postgres URL RESOURCE TOKEN
//	gatewriter http URL RESOURCE TOKEN
//
// It exits with 3 if the token was refused.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/filegate"
	"github.com/leased-project/leased/storagegate/httpgate"
	"github.com/leased-project/leased/storagegate/redisgate"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

const refused = 3

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: gatewriter redis|file|postgres|http PLACE RESOURCE TOKEN")
		os.Exit(2)
	}
	token, err := fencing.ParseToken(os.Args[4])
	if err == nil {
		err = write(context.Background(), os.Args[1], os.Args[2], fencing.Resource(os.Args[3]), token)
	}
	switch {
	case errors.Is(err, fencing.ErrStale), errors.Is(err, fencing.ErrJump):
		os.Exit(refused)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(ctx context.Context, storage, place string, resource fencing.Resource, token fencing.Token) error {
	switch storage {
	case "redis":
		client := redis.NewClient(&redis.Options{Addr: place})
		defer client.Close()
		return redisgate.New(client, fencing.Rule{}).Do(ctx, resource, token, func(tx *redisgate.Tx) error {
			tx.Set(redisgate.Key(resource, ":text"), token.String())
			return nil
		})
	case "file":
		gate, err := filegate.New(place, fencing.Rule{})
		if err != nil {
			return err
		}
		return gate.Do(ctx, resource, token, func(file *filegate.File) error {
			_, err := file.Write([]byte(token.String()))
			return err
		})
	case "postgres":
		db, err := sql.Open("pgx", place)
		if err != nil {
			return err
		}
		defer db.Close()
		gate, err := sqlgate.New(db, sqlgate.Postgres, fencing.Rule{})
		if err != nil {
			return err
		}
		return gate.Enter(ctx, resource, token)
	case "http":
		return post(ctx, place, token)
	}
	return fmt.Errorf("the storage %q is unknown; use redis, file, postgres or http", storage)
}

func post(ctx context.Context, url string, token fencing.Token) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(token.String()))
	if err != nil {
		return err
	}
	httpgate.SetToken(request, token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if err := httpgate.Check(response); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the server responded %s", response.Status)
	}
	return nil
}
