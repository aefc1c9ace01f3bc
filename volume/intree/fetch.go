// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/optional"
	"github.com/seed81659283/nodeagent/internal/volume/payload"
	"github.com/seed81659283/nodeagent/internal/volume/token"
	"github.com/seed81659283/nodeagent/internal/volume/trustbundle"
	"github.com/seed81659283/nodeagent/volume"
)

// fetcher fetches the objects and credentials of one volume.
type fetcher struct {
	node    *node
	tokens  *token.Cache
	bundles *trustbundle.Reader
	pod     *corev1.Pod
	volume  *corev1.Volume
}

// fetchInputs fetches the config maps, secrets, tokens and other objects from which the files of the volume are created. Missing
// objects cause no error.
func (f *fetcher) fetchInputs(ctx context.Context) (in payload.Inputs, err error) {
	in.Allocatable = f.node.nodeAllocatable()
	// Package payload checks whether a missing object is optional.
	in.ConfigMaps, in.Secrets = map[string]*corev1.ConfigMap{}, map[string]*corev1.Secret{}
	for want := range payload.References(f.volume) {
		if f.node.options.Objects == nil {
			break
		}
		switch want.Kind {
		case payload.ConfigMap:
			err = fetchOnce(ctx, f, in.ConfigMaps, want.Name, Objects.ConfigMap)
		case payload.Secret:
			err = fetchOnce(ctx, f, in.Secrets, want.Name, Objects.Secret)
		}
		if err != nil {
			return in, err
		}
	}
	if f.volume.Projected == nil {
		return in, nil
	}
	in.Tokens, in.TrustBundles, in.Certificates = map[int]string{}, map[int][]byte{}, map[int]volume.PodCertificate{}
	for i := range f.volume.Projected.Sources {
		if err := f.fetchProjected(ctx, i, &f.volume.Projected.Sources[i], &in); err != nil {
			return in, fmt.Errorf("source %d: %w", i, err)
		}
	}
	return in, nil
}

// fetchOnce fetches the object with this name and stores it in the map found, unless it is there or does not exist.
func fetchOnce[T any](ctx context.Context, fetcher *fetcher, found map[string]*T, name string, fetch func(Objects, context.Context, string, string) (*T, error)) error {
	if _, ok := found[name]; ok {
		return nil
	}
	object, err := fetch(fetcher.node.options.Objects, ctx, fetcher.pod.Namespace, name)
	switch {
	case err == nil:
		found[name] = object
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return nil
}

// fetchProjected stores the token, trust bundle or certificate of the source with index i of a projected volume in inputs.
func (f *fetcher) fetchProjected(ctx context.Context, i int, source *corev1.VolumeProjection, inputs *payload.Inputs) error {
	switch {
	case source.ServiceAccountToken != nil && f.tokens != nil:
		text, err := f.tokens.TokenText(ctx, volume.TokenRequest{
			Namespace: f.pod.Namespace, ServiceAccount: f.pod.Spec.ServiceAccountName, Audience: source.ServiceAccountToken.Audience,
			ExpirationSeconds: *optional.OrZero(source.ServiceAccountToken.ExpirationSeconds), Pod: f.pod.Name, PodUID: string(f.pod.UID),
		})
		if err != nil {
			return err
		}
		inputs.Tokens[i] = text
	case source.ClusterTrustBundle != nil && f.bundles != nil:
		bundle, err := f.bundles.TrustBundle(ctx, source.ClusterTrustBundle)
		if err != nil {
			if optional.IsTrue(source.ClusterTrustBundle.Optional) && errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return fmt.Errorf("cluster trust bundle: %w", err)
		}
		inputs.TrustBundles[i] = bundle
	case source.PodCertificate != nil && f.node.options.Certificates != nil:
		c, err := f.node.options.Certificates.Certificate(ctx, f.pod, f.volume.Name, i)
		if err != nil {
			return fmt.Errorf("pod certificate: %w", err)
		}
		inputs.Certificates[i] = c
	}
	return nil
}
