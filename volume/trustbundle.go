// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
)

// TrustBundle is a ClusterTrustBundle.
type TrustBundle struct {
	Name   string
	Labels map[string]string
	Signer string // empty: the bundle belongs to no signer, and is selected by its name only
	PEM    string
}

// TrustBundleLister lists the ClusterTrustBundles of a cluster.
type TrustBundleLister interface {
	// TrustBundles returns all bundles, which the caller does not modify. An error means that the bundles are unknown.
	TrustBundles(ctx context.Context) ([]TrustBundle, error)
}

// TrustBundleListerFunc is a function that implements [TrustBundleLister].
type TrustBundleListerFunc func(ctx context.Context) ([]TrustBundle, error)

// TrustBundles calls the function.
func (f TrustBundleListerFunc) TrustBundles(ctx context.Context) ([]TrustBundle, error) {
	return f(ctx)
}

var _ TrustBundleLister = TrustBundleListerFunc(nil)
