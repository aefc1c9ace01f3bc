// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package trustbundle

import (
	"bytes"
	"cmp"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/seed81659283/nodeagent/internal/required"
	"github.com/seed81659283/nodeagent/volume"
)

const (
	// MaxBytes is the maximum size in bytes of the bundles of one file. It equals the maximum size of a volume in package
	// atomicwriter.
	MaxBytes = 64 << 20
	// maxSelector is the maximum length of the text of a label selector, as in the kubelet.
	maxSelector = 100 << 10
)

// Reader reads the certificates that clusterTrustBundle sources show. Create it with [NewReader].
type Reader struct {
	from volume.TrustBundleLister
	seed maphash.Seed
}

// NewReader returns a Reader of the trust bundles listed by from. It panics if from is nil.
func NewReader(from volume.TrustBundleLister) *Reader {
	required.MustArgs("trustbundle.NewReader", required.Arg{Name: "from", Value: from, Hint: "an *apiserver.Objects"})
	return &Reader{from: from, seed: maphash.MakeSeed()}
}

// TrustBundle returns the PEM-encoded certificates of all trust bundles selected by source.
func (r *Reader) TrustBundle(ctx context.Context, source *corev1.ClusterTrustBundleProjection) ([]byte, error) {
	all, err := r.from.TrustBundles(ctx)
	if err != nil {
		return nil, fmt.Errorf("list cluster trust bundles: %w", err)
	}
	found, err := SelectBundles(all, source)
	if err != nil {
		return nil, err
	}
	return EncodeAnchors(found, r.seed)
}

// SelectBundles returns the bundles selected by source, in the order of all. The source selects them by name, or by signer
// and labels. The error wraps [fs.ErrNotExist] if it selects none.
func SelectBundles(all []volume.TrustBundle, source *corev1.ClusterTrustBundleProjection) ([]volume.TrustBundle, error) {
	var found []volume.TrustBundle
	switch {
	case source.Name != nil:
		for _, b := range all {
			if b.Name == *source.Name {
				return []volume.TrustBundle{b}, nil
			}
		}
		return nil, fmt.Errorf("cluster trust bundle %.253q: %w", *source.Name, fs.ErrNotExist)
	case source.SignerName == nil:
		return nil, errors.New("neither name nor signerName is set")
	}
	selector, err := metav1.LabelSelectorAsSelector(source.LabelSelector) // a nil labelSelector selects no bundle, an empty one all
	if err != nil {
		return nil, fmt.Errorf("labelSelector: %w", err)
	}
	if n := len(selector.String()); n > maxSelector {
		return nil, fmt.Errorf("labelSelector: its text has %d bytes, more than %d", n, maxSelector)
	}
	for _, b := range all {
		if b.Signer == *source.SignerName && selector.Matches(labels.Set(b.Labels)) {
			found = append(found, b)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("combination of signerName %.571q and labelSelector matched zero cluster trust bundles: %w", *source.SignerName, fs.ErrNotExist)
	}
	return found, nil
}

// EncodeAnchors returns the certificates in bundles as PEM blocks, without PEM headers and duplicates. The order is
// pseudo-random and depends on seed, so that consumers cannot rely on an order.
func EncodeAnchors(bundles []volume.TrustBundle, seed maphash.Seed) ([]byte, error) {
	size := 0
	seen := map[string]bool{}
	type anchor struct {
		hash uint64
		der  []byte
	}
	var anchors []anchor
	for _, b := range bundles {
		if size += len(b.PEM); size > MaxBytes {
			return nil, fmt.Errorf("cluster trust bundles have more than %d bytes", MaxBytes)
		}
		for block, rest := pem.Decode([]byte(b.PEM)); block != nil; block, rest = pem.Decode(rest) {
			if !seen[string(block.Bytes)] {
				seen[string(block.Bytes)] = true
				anchors = append(anchors, anchor{maphash.Bytes(seed, block.Bytes), block.Bytes})
			}
		}
	}
	slices.SortFunc(anchors, func(a, b anchor) int {
		if a.hash != b.hash {
			return cmp.Compare(a.hash, b.hash)
		}
		return bytes.Compare(a.der, b.der)
	})
	file := make([]byte, 0, size)
	for _, a := range anchors {
		file = append(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.der})...)
	}
	return file, nil
}
