// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package token_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/volume/token"
)

// newJWT returns a JSON Web Token with these claims, which are JSON, and a fake signature.
func newJWT(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

func TestParseExpiryOfToken(t *testing.T) {
	at, err := token.ParseExpiry(newJWT(`{"exp":1790000000,"iat":1,"aud":["x"]}`))
	require.NoError(t, err)
	assert.Equal(t, time.Unix(1790000000, 0), at)
	for name, text := range map[string]string{
		"empty": "", "opaque": "secret", "two parts": "e30.e30", "no base64": "e30.!secret!.c2ln", "no JSON": newJWT("secret"), "none": newJWT("{}"),
		"a text": newJWT(`{"exp":"secret"}`), "negative": newJWT(`{"exp":-1}`), "too far": newJWT(`{"exp":1e300}`), "too long": newJWT(`{"exp":1}`) + strings.Repeat("a", 1<<20),
	} {
		_, err := token.ParseExpiry(text)
		require.EqualError(t, err, "token has no valid expiry", name)
	}
}

func FuzzParseExpiry(f *testing.F) {
	f.Add(newJWT(`{"exp":1790000000}`))
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, text string) {
		if at, err := token.ParseExpiry(text); err == nil && at.Before(time.Unix(0, 0)) {
			t.Fatal(at)
		}
	})
}
