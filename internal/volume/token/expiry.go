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

// maxText is how long a token may be that is looked into, in bytes.
const maxText = 256 << 10

// errOpaque does not quote what it is about.
var errOpaque = errors.New("the token does not say when it expires")

// Expiry returns when a token expires that is a JSON Web Token, as those of service accounts are. It does not look at the signature:
// whoever asks has the token from a place that can be trusted. An error has nothing of the token in it.
func Expiry(text string) (time.Time, error) {
	if len(text) > maxText {
		return time.Time{}, errOpaque
	}
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return time.Time{}, errOpaque
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}, errOpaque
	}
	var c struct {
		Exp *float64 `json:"exp"` // seconds since 1970
	}
	if json.Unmarshal(claims, &c) != nil || c.Exp == nil || *c.Exp < 0 || *c.Exp > math.MaxInt32*1000 {
		return time.Time{}, errOpaque
	}
	return time.Unix(int64(*c.Exp), 0), nil
}
