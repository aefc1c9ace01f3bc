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
	// MaxBytes is how many bytes of bundles are made one file: as many as a volume may have.
	MaxBytes = 64 << 20
	// maxSelector is how long the text of a selector may be, as in the kubelet.
	maxSelector = 100 << 10
)

// Reader reads what sources show. Make one with [NewReader].
type Reader struct {
	from volume.TrustBundleLister
	seed maphash.Seed
}

// NewReader returns a Reader. It panics if there is no lister.
func NewReader(from volume.TrustBundleLister) *Reader {
	required.MustArgs("trustbundle.NewReader", required.Arg{Name: "from", Value: from, Hint: "an *apiserver.Objects"})
	return &Reader{from: from, seed: maphash.MakeSeed()}
}

// TrustBundle returns the certificates that a source of a projected volume shows, as PEM.
func (r *Reader) TrustBundle(ctx context.Context, source *corev1.ClusterTrustBundleProjection) ([]byte, error) {
	all, err := r.from.TrustBundles(ctx)
	if err != nil {
		return nil, fmt.Errorf("list cluster trust bundles: %w", err)
	}
	found, err := Select(all, source)
	if err != nil {
		return nil, err
	}
	return Anchors(found, r.seed)
}

// Select returns the bundles that a source names, in the order in which they are given. No bundle is an error that wraps
// fs.ErrNotExist.
func Select(all []volume.TrustBundle, source *corev1.ClusterTrustBundleProjection) ([]volume.TrustBundle, error) {
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
	selector, err := metav1.LabelSelectorAsSelector(source.LabelSelector) // nil selects nothing, an empty one everything
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

// Anchors returns the certificates of bundles as PEM, each once, without headers and what is between them. The order is that of
// their hashes by the seed.
func Anchors(bundles []volume.TrustBundle, seed maphash.Seed) ([]byte, error) {
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
