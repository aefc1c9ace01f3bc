// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package token keeps the service account tokens of pods and gets new ones before they expire. It does not make tokens and does
// not write them anywhere.
//
// # Model
//
// A [Cache] gets tokens from a [volume.TokenIssuer], which for most is the TokenRequest of an API server. [Cache.Get] returns the one it has
// unless that is due: older than 24 hours, or in the last fifth of its time, each less up to 10 s at random. If no new one can
// be had, the old one is returned until it has expired.
//
//	cache := token.NewCache(issuer, nil)
//	text, err := cache.Get(ctx, volume.TokenRequest{Namespace: "default", ServiceAccount: "app", Seconds: 3600, PodUID: uid})
//	...
//	cache.Forget(uid)
//
// [Due] is the pure decision. [Expiry] reads from a token when it expires.
//
// # Concurrency
//
// All methods can be called from several goroutines. Two calls for the same token at the same time may ask for it twice. The
// cache has no goroutines: what has expired is dropped by a later Get.
//
// # Errors
//
// An error names the service account and wraps the one of the issuer. None has a token in it.
//
// # Differs from the kubelet
//
// The behaviour is that of pkg/kubelet/token at 1.37.1, but that the cache is bounded: it keeps [MaxTokens].
//
// Test kit: none is needed. A [volume.TokenIssuerFunc] will do, and the time is that of package time, also in a bubble of testing/synctest.
package token
