// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
)

// TrustBundle is a ClusterTrustBundle object.
type TrustBundle struct {
	Name   string
	Labels map[string]string
	Signer string // name of the signer; empty: none, and volumes select the bundle by its name only
	PEM    string
}

// TrustBundleLister lists the ClusterTrustBundle objects of the cluster.
type TrustBundleLister interface {
	// TrustBundles returns all bundles. The caller does not modify them. After an error the bundles are unknown.
	TrustBundles(ctx context.Context) ([]TrustBundle, error)
}

// TrustBundleListerFunc is a function that implements [TrustBundleLister].
type TrustBundleListerFunc func(ctx context.Context) ([]TrustBundle, error)

// TrustBundles calls the function.
func (f TrustBundleListerFunc) TrustBundles(ctx context.Context) ([]TrustBundle, error) {
	return f(ctx)
}

var _ TrustBundleLister = TrustBundleListerFunc(nil)
