package outbox

import (
	"encoding/json"
	"fmt"
)

// encodeHeaders returns headers as they are stored, "" for none.
func encodeHeaders(headers map[string]string) string {
	if len(headers) == 0 {
		return ""
	}
	text, err := json.Marshal(headers)
	if err != nil {
		panic(err) // a map of strings
	}
	return string(text)
}

func decodeHeaders(text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	var headers map[string]string
	if err := json.Unmarshal([]byte(text), &headers); err != nil {
		return nil, fmt.Errorf("%w: its headers are not an object of strings", ErrDamaged)
	}
	return headers, nil
}
