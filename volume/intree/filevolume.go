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

// fileVolume is the plugin for configMap, secret, downwardAPI and projected volumes, whose files the agent writes and updates.
type fileVolume struct {
	node    *node
	memory  bool                // the files are on a tmpfs
	tokens  *token.Cache        // nil: Options.Tokens is nil
	bundles *trustbundle.Reader // nil: Options.TrustBundles is nil
}

// Check returns an error for each source of the volume that this node cannot read, because its option in Options is nil.
// path is the field path of the volume.
func (w *fileVolume) Check(_ *corev1.Pod, vol *corev1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	refuse := func(path *field.Path, what string) {
		errs = append(errs, field.Forbidden(path, "not supported on this node: "+what))
	}
	if w.node.options.Objects == nil {
		for want := range payload.References(vol) {
			if !want.Optional {
				refuse(path, "there are no config maps and secrets")
				break
			}
		}
	}
	if vol.Projected == nil {
		return errs
	}
	for i := range vol.Projected.Sources {
		path := path.Child("sources").Index(i)
		switch s := &vol.Projected.Sources[i]; {
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

// Shows reports whether files of the volume are created from this object. The object can be, for example, a config map, or
// the pod with its metadata.
func (w *fileVolume) Shows(pod *corev1.Pod, vol *corev1.Volume, object volume.Object) bool {
	if (object.Kind == volume.KindPod || object.Kind == "") && payload.ShowsMetadata(vol) || payload.ShowsClusterObject(pod, vol, payload.Kind(object.Kind), object.Name) {
		return true
	}
	for want := range payload.References(vol) {
		if (object.Kind == "" || object.Kind == string(want.Kind)) && (object.Name == "" || object.Name == want.Name) {
			return true
		}
	}
	return false
}

// SetUp writes or updates the files of the volume, after it has fetched all objects. If fetching fails and a previous agent
// process has left usable files, it returns a StaleError: containers may start with these files.
func (w *fileVolume) SetUp(ctx context.Context, vol volume.Volume) (volume.Mount, error) {
	m := volume.Mount{HostPath: vol.Dir, ReadOnly: true, SELinuxRelabel: true}
	limit, usable := fetchTimeout, w.isUsable(vol)
	if usable {
		limit = recoveredTimeout
	}
	files, err := w.buildFiles(ctx, vol, limit)
	if err != nil {
		if _, statErr := os.Lstat(vol.Dir); errors.Is(statErr, os.ErrNotExist) {
			err = &volume.FinalError{Err: err}
		} else if usable {
			err = &volume.StaleError{Err: err}
		}
		return m, err
	}
	if err := createDir(vol.Dir); err != nil {
		return m, err
	}
	if w.memory {
		if err := mountOnce(ctx, vol.Dir, tmpfsMounter(w.node.memorySize(vol.Pod, nil))); err != nil {
			return m, err
		}
	}
	if err := createMountPoints(vol.Dir, nestedMountPoints(vol.Name, &vol.Pod.Spec)); err != nil {
		return m, err
	}
	_, err = atomicwriter.Write(vol.Dir, files, atomicwriter.Options{SetPerms: w.permsFunc(ctx, vol)})
	return m, err
}

// permsFunc returns a function for atomicwriter.Options.SetPerms, which changes the group of all files to the pod's fsGroup.
// Without an fsGroup it is nil.
func (w *fileVolume) permsFunc(ctx context.Context, vol volume.Volume) func(string) error {
	gid := fsGroup(vol.Pod)
	if gid == nil {
		return nil
	}
	return func(string) error {
		err := fsgroup.Apply(ctx, vol.Dir, *gid, fsgroup.Options{ReadOnly: true, ReportSlow: slowReporter(vol)})
		if _, ok := errors.AsType[*fsgroup.FilesError](err); ok {
			return nil // all other files are changed; the kubelet continues too
		}
		return err
	}
}

// TearDown unmounts and removes the directory of vol. It also drops the cached tokens and certificates of the pod.
func (w *fileVolume) TearDown(ctx context.Context, vol volume.Volume) error {
	if err := w.node.removeVolume(ctx, vol); err != nil {
		return err
	}
	if w.tokens != nil {
		w.tokens.Forget(vol.UID)
	}
	if f, ok := w.node.options.Certificates.(forgetter); ok && w.memory {
		f.Forget(vol.UID)
	}
	return nil
}

// Usage returns the usage of the volume's directory or tmpfs.
func (w *fileVolume) Usage(ctx context.Context, vol volume.Volume) (volume.Usage, error) {
	return w.node.measureDir(ctx, vol.Dir)
}

// buildFiles fetches the objects that the volume shows, within the time limit, and returns its files.
func (w *fileVolume) buildFiles(ctx context.Context, vol volume.Volume, limit time.Duration) (payload.Files, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	f := &fetcher{node: w.node, tokens: w.tokens, bundles: w.bundles, pod: vol.Pod, volume: vol.Source}
	in, err := f.fetchInputs(ctx)
	if err != nil {
		return nil, err
	}
	return payload.BuildFiles(vol.Pod, vol.Source, in)
}
