package recipes_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	bolt "go.etcd.io/bbolt"
	_ "modernc.org/sqlite"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/boltgate"
	"github.com/leased-project/leased/storagegate/filegate"
	"github.com/leased-project/leased/storagegate/memgate"
	"github.com/leased-project/leased/storagegate/objectgate"
	"github.com/leased-project/leased/storagegate/redisgate"
	"github.com/leased-project/leased/storagegate/sqlgate"
	"github.com/leased-project/leased/storagegate/sqlgate/pgxgate"
)

func withPGX(ctx context.Context, pool *pgxpool.Pool, token fencing.Token) error {
	gate := pgxgate.New(pool, fencing.Rule{})
	if err := gate.Install(ctx); err != nil { // once, as a user who may create tables
		return err
	}
	if err := gate.Enter(ctx, "account/7", token); err != nil { // before the first read
		return err
	}
	err := gate.Do(ctx, "account/7", token, func(tx pgxgate.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE accounts SET balance = balance - 10 WHERE id = 7`)
		return err
	})
	if err != nil {
		return err
	}
	if err := inABatch(ctx, gate, token); err != nil {
		return err
	}
	return inTheCallersTransaction(ctx, pool, gate, token)
}

func inABatch(ctx context.Context, gate *pgxgate.Gate, token fencing.Token) error {
	err := gate.Batch(ctx, "account/7", token, func(b *pgx.Batch) {
		b.Queue(`UPDATE accounts SET balance = balance - 10 WHERE id = 7`)
	})
	return err
}

func inTheCallersTransaction(ctx context.Context, pool *pgxpool.Pool, gate *pgxgate.Gate, token fencing.Token) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := gate.Admit(ctx, tx, "account/7", token); err != nil { // before its first read
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE accounts SET balance = balance - 10 WHERE id = 7`)
		return err
	})
	return err
}

func withMySQL(ctx context.Context, token fencing.Token) error {
	db, err := sql.Open("mysql", "app:secret@tcp(127.0.0.1:3306)/shop")
	if err != nil {
		return err
	}
	gate, err := sqlgate.New(db, sqlgate.MySQL, fencing.Rule{})
	if err != nil {
		return err
	}
	return withDatabaseSQL(ctx, gate, token)
}

func withDatabaseSQL(ctx context.Context, gate *sqlgate.Gate, token fencing.Token) error {
	if err := gate.Install(ctx); err != nil { // once, as a user who may create tables
		return err
	}
	if err := gate.Enter(ctx, "account/7", token); err != nil { // before the first read
		return err
	}
	err := gate.Do(ctx, "account/7", token, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE accounts SET balance = balance - 10 WHERE id = 7`)
		return err
	})
	return err
}

func withSQLite(ctx context.Context, token fencing.Token, prepare func(*sql.DB)) error {
	const file = "file:app.db?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
	db, err := sql.Open("sqlite", file)
	if err != nil {
		return err
	}
	gate, err := sqlgate.New(db, sqlgate.SQLite, fencing.Rule{})
	if err != nil {
		return err
	}
	defer db.Close()
	prepare(db)
	return withDatabaseSQL(ctx, gate, token)
}

func withBolt(ctx context.Context, db *bolt.DB, token fencing.Token) error {
	gate := boltgate.New(db, fencing.Rule{})
	if err := gate.Enter(ctx, "account/7", token); err != nil { // before the first read
		return err
	}
	err := gate.Do(ctx, "account/7", token, func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("accounts")).Put([]byte("7"), []byte("90"))
	})
	return err
}

func withFiles(ctx context.Context, dir string, report any, token fencing.Token) error {
	gate, err := filegate.New(dir, fencing.Rule{})
	if err != nil {
		return err
	}
	if err := gate.Enter(ctx, "report.json", token); err != nil { // before the first read
		return err
	}
	err = gate.Do(ctx, "report.json", token, func(file *filegate.File) error {
		return json.NewEncoder(file).Encode(report)
	})
	return err
}

// Account is the value of the memory gate.
type Account struct{ Balance int }

func inMemory(ctx context.Context, token fencing.Token) error {
	gate := memgate.New[Account](fencing.Rule{})
	err := gate.Do(ctx, "account/7", token, func(a *Account) error { a.Balance -= 10; return nil })
	return err
}

func withRedis(ctx context.Context, addr string, token fencing.Token) error {
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	if err := redisgate.Verify(ctx, client); err != nil { // the server must keep marks; the error says what to set
		return err
	}
	gate := redisgate.New(client, fencing.Rule{})
	if err := gate.Enter(ctx, "orders/42", token); err != nil { // before the first read
		return err
	}
	err := gate.Do(ctx, "orders/42", token, func(tx *redisgate.Tx) error {
		tx.Set(redisgate.Key("orders/42", ":status"), "paid") // {orders/42}:status
		tx.HSet(redisgate.Key("orders/42", ":totals"), "net", 100, "tax", 19)
		tx.RPush(redisgate.Key("orders/42", ":log"), "paid")
		return nil
	})
	defer client.Close()
	if err != nil {
		return err
	}
	_, err = withLua(ctx, gate, token)
	return err
}

var spend = redisgate.NewScript(`
	local left = redis.call('DECRBY', KEYS[1], ARGV[1])
	return left`)

func withLua(ctx context.Context, gate *redisgate.Gate, token fencing.Token) (any, error) {
	left, err := gate.Run(ctx, "orders/42", token, spend, []string{redisgate.Key("orders/42", ":budget")}, 10)
	return left, err
}

func withObjects(ctx context.Context, client *s3.Client, token fencing.Token) ([]byte, error) {
	gate := objectgate.New(client, "my-bucket", fencing.Rule{}, objectgate.Prefix("orders/"))
	if err := gate.Verify(ctx, "leased-probe"); err != nil { // the store must enforce conditions
		return nil, err
	}
	err := gate.Do(ctx, "orders/42", token, func(tx *objectgate.Tx) error {
		old, err := tx.Read() // the data that the write replaces
		if err != nil {
			return err
		}
		tx.Write(bytes.ToUpper(old))
		return nil
	})
	if err != nil {
		return nil, err
	}
	data, err := gate.Read(ctx, "orders/42")
	return data, err
}

var _, _ = withMySQL, withObjects // compiled only, because their servers start slowly
