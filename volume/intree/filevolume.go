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

// fetchTimeout is the maximum time for fetching the objects of a volume.
const fetchTimeout = 10 * time.Second

// fileVolume is the plugin for configMap, secret, downwardAPI and projected volumes: the agent writes and updates their files.
type fileVolume struct {
	node    *node
	memory  bool                // the files are on a tmpfs
	tokens  *token.Cache        // nil: Options.Tokens is nil
	bundles *trustbundle.Reader // nil: Options.TrustBundles is nil
}

// Check returns errors for sources that Options does not provide.
func (w *fileVolume) Check(_ *corev1.Pod, v *corev1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	refuse := func(path *field.Path, what string) {
		errs = append(errs, field.Forbidden(path, "not supported on this node: "+what))
	}
	if w.node.options.Objects == nil {
		for want := range payload.References(v) {
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
func (w *fileVolume) Shows(pod *corev1.Pod, v *corev1.Volume, o volume.Object) bool {
	if (o.Kind == volume.KindPod || o.Kind == "") && payload.ShowsMetadata(v) || payload.ShowsClusterObject(pod, v, payload.Kind(o.Kind), o.Name) {
		return true
	}
	for want := range payload.References(v) {
		if (o.Kind == "" || o.Kind == string(want.Kind)) && (o.Name == "" || o.Name == want.Name) {
			return true
		}
	}
	return false
}

// SetUp writes or updates the files. It fetches all objects before it changes the volume. If that fails, and a previous agent has
// left usable files, it returns a StaleError.
func (w *fileVolume) SetUp(ctx context.Context, v volume.Volume) (volume.Mount, error) {
	m := volume.Mount{HostPath: v.Dir, ReadOnly: true, SELinuxRelabel: true}
	limit, usable := fetchTimeout, w.isUsable(v)
	if usable {
		limit = recoveredTimeout
	}
	files, err := w.buildFiles(ctx, v, limit)
	if err != nil {
		if _, statErr := os.Lstat(v.Dir); errors.Is(statErr, os.ErrNotExist) {
			err = &volume.FinalError{Err: err}
		} else if usable {
			err = &volume.StaleError{Err: err}
		}
		return m, err
	}
	if err := createDir(v.Dir); err != nil {
		return m, err
	}
	if w.memory {
		if err := mountOnce(ctx, v.Dir, tmpfsMounter(w.node.memorySize(v.Pod, nil))); err != nil {
			return m, err
		}
	}
	if err := createMountPoints(v.Dir, nestedMountPoints(v.Name, &v.Pod.Spec)); err != nil {
		return m, err
	}
	_, err = atomicwriter.Write(v.Dir, files, atomicwriter.Options{SetPerms: w.permsFunc(ctx, v)})
	return m, err
}

// permsFunc returns the atomicwriter.Options.SetPerms of a volume: it changes the group of the files to the fsGroup before they
// are published. Nil: the pod has no fsGroup.
func (w *fileVolume) permsFunc(ctx context.Context, v volume.Volume) func(string) error {
	gid := fsGroup(v.Pod)
	if gid == nil {
		return nil
	}
	return func(string) error {
		err := fsgroup.Apply(ctx, v.Dir, *gid, fsgroup.Options{ReadOnly: true, ReportSlow: slowReporter(v)})
		if _, ok := errors.AsType[*fsgroup.FilesError](err); ok {
			return nil // all other files are changed; the kubelet continues too
		}
		return err
	}
}

// TearDown unmounts and removes the directory, and drops tokens and certificates of the pod.
func (w *fileVolume) TearDown(ctx context.Context, v volume.Volume) error {
	if err := w.node.removeVolume(ctx, v); err != nil {
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

// Usage returns the usage of the directory or its tmpfs.
func (w *fileVolume) Usage(ctx context.Context, v volume.Volume) (volume.Usage, error) {
	return w.node.measureDir(ctx, v.Dir)
}

// buildFiles fetches the objects of a volume within limit, and returns its files.
func (w *fileVolume) buildFiles(ctx context.Context, v volume.Volume, limit time.Duration) (payload.Files, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	f := &fetcher{node: w.node, tokens: w.tokens, bundles: w.bundles, pod: v.Pod, volume: v.Source}
	in, err := f.fetchInputs(ctx)
	if err != nil {
		return nil, err
	}
	return payload.BuildFiles(v.Pod, v.Source, in)
}
