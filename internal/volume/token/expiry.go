// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package token

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"time"
)

// maxTokenSize is the maximum length in bytes of a token that ParseExpiry accepts.
const maxTokenSize = 256 << 10

// errNoExpiry does not quote the token.
var errNoExpiry = errors.New("token has no valid expiry")

// ParseExpiry returns when a JSON Web Token, such as a service account token, expires. It does not verify the signature: the
// caller must trust the source of the token. The error does not contain the token.
func ParseExpiry(text string) (time.Time, error) {
	if len(text) > maxTokenSize {
		return time.Time{}, errNoExpiry
	}
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return time.Time{}, errNoExpiry
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}, errNoExpiry
	}
	var c struct {
		Exp *float64 `json:"exp"` // seconds since 1970
	}
	if json.Unmarshal(claims, &c) != nil || c.Exp == nil || *c.Exp < 0 || *c.Exp > math.MaxInt32*1000 {
		return time.Time{}, errNoExpiry
	}
	return time.Unix(int64(*c.Exp), 0), nil
}
