// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package trustbundle selects the certificates that a clusterTrustBundle source of a projected volume shows, and encodes them as
// one PEM file. It does not read ClusterTrustBundle objects and does not verify certificates.
//
//	reader := trustbundle.NewReader(lister)
//	anchors, err := reader.TrustBundle(ctx, source)
//
// [SelectBundles] returns the bundles that a source names, by name or by signer and labels. [EncodeAnchors] encodes their
// certificates as one file. A [Reader] does both, with the bundles of a [volume.TrustBundleLister]. Package intree uses a Reader.
//
// A certificate that is in several bundles appears once. The order is random, so that applications do not rely on it, but
// constant until the agent restarts, so that files change only if a bundle changes.
//
// # Concurrency
//
// All functions and methods may be called from any goroutine.
//
// # Errors
//
// If no bundle is found, the error wraps fs.ErrNotExist; for an optional source that means an empty file. After any other error
// the bundles are unknown.
//
// # Differs from the kubelet
//
// The behaviour is that of pkg/kubelet/clustertrustbundle at 1.37.1. DIFFERENCES.md lists all differences, with these:
//
//   - Nothing is cached: each update shows the result of the lister. The kubelet caches files for five minutes.
//   - A file has at most [MaxBytes] of bundles.
//
// Test kit: package volumetest has TrustBundles.
package trustbundle
