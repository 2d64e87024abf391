package api

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
)

// cursors signs where lists go on. A cursor belongs to one list with one filter and one
// tenant; one that was made up, or comes from another list, is refused instead of
// showing a page that only looks right.
type cursors struct{ key []byte }

const cursorMAC = 12

// make returns the cursor of a position in a list. list names it with all its filters.
func (c cursors) make(list, position string) string {
	return base64.RawURLEncoding.EncodeToString(append(c.mac(list, position), position...))
}

// read returns the position of a cursor, "" for none.
func (c cursors) read(list, cursor string) (string, error) {
	if cursor == "" {
		return "", nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(raw) <= cursorMAC {
		return "", badCursor.at("query.cursor", "is not one that this list gave")
	}
	position := string(raw[cursorMAC:])
	if !hmac.Equal(raw[:cursorMAC], c.mac(list, position)) {
		return "", badCursor.at("query.cursor", "is not one that this list gave, with these filters")
	}
	return position, nil
}

func (c cursors) mac(list, position string) []byte {
	h := hmac.New(sha256.New, c.key)
	// The length says where the list's name ends: a filter in it may hold any text.
	h.Write(binary.AppendUvarint(nil, uint64(len(list))))
	h.Write([]byte(list))
	h.Write([]byte(position))
	return h.Sum(nil)[:cursorMAC]
}
