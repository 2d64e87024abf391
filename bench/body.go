package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

const (
	bodySize = 500
	// streams is how many streams messages belong to where order is looked at: the
	// sub of a body.
	streams = 1000
)

var padding = strings.Repeat("0123456789abcdef", bodySize/16)

// newBody returns message seq: a JSON object of bodySize bytes.
func newBody(seq int64) []byte {
	head := fmt.Sprintf(`{"id":"%s","seq":%d,"sub":%d,"type":"asset.updated","pad":"`, uuid.Must(uuid.NewV7()), seq, seq%streams)
	return []byte(head + padding[:bodySize-len(head)-2] + `"}`)
}

// number reads the number under key from a body, which a peer may have written anew
// as JSON.
func number(body []byte, key string) int64 {
	_, rest, _ := strings.Cut(string(body), `"`+key+`":`)
	rest = strings.TrimLeft(rest, " ")
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	n, err := strconv.ParseInt(rest[:max(end, 0)], 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// bodies are messages from to from+n.
func bodies(from int64, n int) [][]byte {
	list := make([][]byte, n)
	for i := range list {
		list[i] = newBody(from + int64(i))
	}
	return list
}
