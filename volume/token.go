// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"time"
)

// TokenRequest describes a service account token that a volume or its CSI driver needs.
type TokenRequest struct {
	Namespace, ServiceAccount string
	Audience                  string // empty: the audience of the API server
	Seconds                   int64  // requested lifetime; zero means 3600
	Pod, PodUID               string // the pod that the token is bound to
}

// Token is a token of a service account.
type Token struct {
	Value   string
	Expires time.Time
}

// TokenIssuer issues service account tokens, as the TokenRequest of an API server does. The plugins of packages intree and csi cache tokens:
// an issuer needs no cache.
type TokenIssuer interface {
	// Token returns a new token. The error does not contain the token.
	Token(ctx context.Context, r TokenRequest) (Token, error)
}

// TokenIssuerFunc is a function that implements [TokenIssuer].
type TokenIssuerFunc func(ctx context.Context, r TokenRequest) (Token, error)

// Token calls the function.
func (f TokenIssuerFunc) Token(ctx context.Context, r TokenRequest) (Token, error) { return f(ctx, r) }

var _ TokenIssuer = TokenIssuerFunc(nil)
