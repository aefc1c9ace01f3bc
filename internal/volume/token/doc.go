// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package token caches the service account tokens of pods and requests new ones before they expire. It issues no tokens and
// writes none to disk.
//
//	cache := token.NewCache(issuer, nil)
//	text, err := cache.TokenText(ctx, volume.TokenRequest{Namespace: "default", ServiceAccount: "app", ExpirationSeconds: 3600, PodUID: uid})
//	...
//	cache.Forget(uid)
//
// A [Cache] requests tokens from a [volume.TokenIssuer], usually the TokenRequest API. A token is renewed when it is older than
// 24 hours, or in the last fifth of its lifetime, each minus up to 10 s at random. If the renewal fails, the old token is used
// until it expires. [NeedsRefresh] is this decision; [ParseExpiry] reads the expiry from a token.
//
// # Concurrency
//
// All methods may be called from several goroutines. Two concurrent calls for one token may both request it. The cache has no
// goroutines: later calls drop expired tokens.
//
// # Errors
//
// An error names the service account and wraps the error of the issuer. It never contains a token.
//
// # Differs from the kubelet
//
// The behaviour is that of pkg/kubelet/token at 1.37.1, except that the cache has at most [MaxTokens] tokens.
//
// Test kit: none is needed. Use a [volume.TokenIssuerFunc]. The clock is that of package time, which testing/synctest can
// replace.
package token
