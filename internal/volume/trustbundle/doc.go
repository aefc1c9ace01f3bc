// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package trustbundle decides which certificates a clusterTrustBundle source of a projected volume shows, and in which form. It
// does not fetch cluster trust bundles, and does not verify the certificates in them.
//
// # Model
//
// [Select] returns the bundles that a source names, by name or by signer and labels, and [Anchors] makes one file of them. A [Reader]
// does both with the bundles of a [volume.TrustBundleLister], which is for a cluster a list that a watch keeps, and is where package intree has trust
// bundles from:
//
//	reader := trustbundle.NewReader(lister)
//	plugins := intree.Plugins(intree.Options{TrustBundles: reader})
//
// A certificate that several bundles have is there once. The order means nothing: it is the same as long as the agent runs, so that
// a file changes only where a bundle does, and another one after a restart, so that nobody relies on it.
//
// A volume is brought up to date when its plugin hears that an object of [volume.KindTrustBundle] has changed, and every minute anyway.
//
// # Concurrency
//
// All functions and methods may be called from any goroutine.
//
// # Errors
//
// Where nothing is found the error wraps fs.ErrNotExist, which an optional source takes for an empty file. Any other error is that it
// cannot be known.
//
// # Differs from the kubelet
//
// The behaviour is that of pkg/kubelet/clustertrustbundle at 1.37.1. What a user must act on, with the rest in DIFFERENCES.md:
//
//   - Nothing is cached: what a lister returns is what volumes show at the next update. The kubelet keeps files for five minutes.
//   - At most [MaxBytes] are made one file.
//
// Test kit: package volumetest has TrustBundles.
package trustbundle
