// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree

import (
	"context"
	"errors"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/volume/payload"
	"github.com/seed81659283/nodeagent/internal/volume/token"
	"github.com/seed81659283/nodeagent/internal/volume/trustbundle"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/atomicwriter"
	"github.com/seed81659283/nodeagent/volume/fsgroup"
)

// fetchTimeout is how long all objects of a volume may take together.
const fetchTimeout = 10 * time.Second

// written makes volumes whose files the agent writes, and keeps them up to date.
type written struct {
	node    *node
	memory  bool                // on a tmpfs
	tokens  *token.Cache        // nil: there are none
	bundles *trustbundle.Reader // likewise
}

// Check refuses sources that nobody has.
func (w *written) Check(_ *corev1.Pod, v *corev1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	refuse := func(path *field.Path, what string) {
		errs = append(errs, field.Forbidden(path, "not supported on this node: "+what))
	}
	if w.node.options.Objects == nil {
		for want := range payload.Wants(v) {
			if !want.Optional {
				refuse(path, "there are no config maps and secrets")
				break
			}
		}
	}
	if v.Projected == nil {
		return errs
	}
	for i := range v.Projected.Sources {
		path := path.Child("sources").Index(i)
		switch s := &v.Projected.Sources[i]; {
		case s.ServiceAccountToken != nil && w.tokens == nil:
			refuse(path.Child("serviceAccountToken"), "service account tokens")
		case s.ClusterTrustBundle != nil && w.bundles == nil:
			refuse(path.Child("clusterTrustBundle"), "cluster trust bundles")
		case s.PodCertificate != nil && w.node.options.Certificates == nil:
			refuse(path.Child("podCertificate"), "pod certificates")
		}
	}
	return errs
}

// Shows reports whether a volume shows an object.
func (w *written) Shows(pod *corev1.Pod, v *corev1.Volume, o volume.Object) bool {
	if (o.Kind == volume.KindPod || o.Kind == "") && payload.ShowsMetadata(v) || payload.ShowsCluster(pod, v, payload.Kind(o.Kind), o.Name) {
		return true
	}
	for want := range payload.Wants(v) {
		if (o.Kind == "" || o.Kind == string(want.Kind)) && (o.Name == "" || o.Name == want.Name) {
			return true
		}
	}
	return false
}

// SetUp writes the files, or brings them up to date. What they are made of is fetched before anything is made. If that fails, the files
// of an earlier agent do for as long as they can be used.
func (w *written) SetUp(ctx context.Context, v volume.Volume) (volume.Mount, error) {
	m := volume.Mount{HostPath: v.Dir, ReadOnly: true, SELinuxRelabel: true}
	limit, usable := fetchTimeout, w.usable(v)
	if usable {
		limit = usableTimeout
	}
	files, err := w.files(ctx, v, limit)
	if err != nil {
		if _, statErr := os.Lstat(v.Dir); errors.Is(statErr, os.ErrNotExist) {
			err = &volume.FinalError{Err: err}
		} else if usable {
			err = &volume.StaleError{Err: err}
		}
		return m, err
	}
	if err := makeDir(v.Dir); err != nil {
		return m, err
	}
	if w.memory {
		if err := mountOnce(ctx, v.Dir, tmpfs(w.node.memorySize(v.Pod, nil))); err != nil {
			return m, err
		}
	}
	if err := makeMountPoints(v.Dir, mountPoints(v.Name, &v.Pod.Spec)); err != nil {
		return m, err
	}
	_, err = atomicwriter.Write(v.Dir, files, atomicwriter.Options{SetPerms: w.setPerms(ctx, v)})
	return m, err
}

// setPerms gives the files to the fsGroup of the pod before they are seen, and the directory with them.
func (w *written) setPerms(ctx context.Context, v volume.Volume) func(string) error {
	gid := fsGroup(v.Pod)
	if gid == nil {
		return nil
	}
	return func(string) error {
		err := fsgroup.Apply(ctx, v.Dir, *gid, fsgroup.Options{ReadOnly: true, Slow: slow(v)})
		if _, ok := errors.AsType[*fsgroup.FilesError](err); ok {
			return nil // all others are done, and the kubelet goes on, too
		}
		return err
	}
}

// TearDown unmounts and removes the directory.
func (w *written) TearDown(ctx context.Context, v volume.Volume) error {
	if err := w.node.remove(ctx, v); err != nil {
		return err
	}
	if w.tokens != nil {
		w.tokens.Forget(v.UID)
	}
	if f, ok := w.node.options.Certificates.(forgetter); ok && w.memory {
		f.Forget(v.UID)
	}
	return nil
}

// Usage measures what is in the directory, or its tmpfs.
func (w *written) Usage(ctx context.Context, v volume.Volume) (volume.Usage, error) {
	return w.node.usage(ctx, v.Dir)
}

// files fetches what a volume is made of, and returns its files.
func (w *written) files(ctx context.Context, v volume.Volume, limit time.Duration) (payload.Files, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	f := &fetch{node: w.node, tokens: w.tokens, bundles: w.bundles, pod: v.Pod, volume: v.Source}
	in, err := f.inputs(ctx)
	if err != nil {
		return nil, err
	}
	return payload.Of(v.Pod, v.Source, in)
}
