// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"time"
)

// TokenRequest describes a service account token, for a projected volume or a CSI driver.
type TokenRequest struct {
	Namespace, ServiceAccount string
	Audience                  string // empty: the audience of the API server
	ExpirationSeconds         int64  // requested lifetime; zero means 3600
	Pod, PodUID               string // name and UID of the pod that the token is bound to
}

// Token is a service account token.
type Token struct {
	Value   string
	Expires time.Time
}

// TokenIssuer issues service account tokens, such as with the TokenRequest API. Packages intree and csi cache the tokens: an
// issuer needs no cache.
type TokenIssuer interface {
	// Token returns a new token. Its error must not contain the token.
	Token(ctx context.Context, request TokenRequest) (Token, error)
}

// TokenIssuerFunc is a function that implements [TokenIssuer].
type TokenIssuerFunc func(ctx context.Context, request TokenRequest) (Token, error)

// Token calls the function.
func (f TokenIssuerFunc) Token(ctx context.Context, r TokenRequest) (Token, error) { return f(ctx, r) }

var _ TokenIssuer = TokenIssuerFunc(nil)
