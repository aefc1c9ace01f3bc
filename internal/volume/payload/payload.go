// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/optional"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/atomicwriter"
)

// Files are the files of a volume, by path relative to the volume.
type Files = map[string]atomicwriter.File

// Inputs are the objects and credentials from which the files of a volume are created. An object that is not in Inputs does not
// exist.
type Inputs struct {
	ConfigMaps map[string]*corev1.ConfigMap // by name, in the namespace of the pod
	Secrets    map[string]*corev1.Secret    // by name, in the namespace of the pod

	// Credentials for the sources of a projected volume, by index of the source.
	Tokens       map[int]string
	TrustBundles map[int][]byte // PEM
	Certificates map[int]volume.PodCertificate

	Allocatable corev1.ResourceList // of the node, for containers without limits
}

// BuildFiles returns the files of a configMap, secret, downwardAPI or projected volume of pod. inputs contains the objects
// and credentials for the files. An error names the missing objects and keys.
func BuildFiles(pod *corev1.Pod, vol *corev1.Volume, inputs Inputs) (Files, error) {
	b := &builder{pod: pod, in: inputs, files: Files{}}
	switch {
	case vol.ConfigMap != nil:
		b.mode = vol.ConfigMap.DefaultMode
		b.addConfigMap(vol.ConfigMap.Name, vol.ConfigMap.Items, vol.ConfigMap.Optional)
	case vol.Secret != nil:
		b.mode = vol.Secret.DefaultMode
		b.addSecret(vol.Secret.SecretName, vol.Secret.Items, vol.Secret.Optional)
	case vol.DownwardAPI != nil:
		b.mode = vol.DownwardAPI.DefaultMode
		b.addDownwardAPI(vol.DownwardAPI.Items)
	case vol.Projected != nil:
		b.mode = vol.Projected.DefaultMode
		for i := range vol.Projected.Sources {
			b.addSource(i, &vol.Projected.Sources[i])
		}
	default:
		return nil, errors.New("volume has no source with files")
	}
	return b.buildResult()
}

// builder collects the files of one volume, and the errors about missing objects and keys.
type builder struct {
	pod    *corev1.Pod
	in     Inputs
	mode   *int32 // default mode of files; nil: 0644
	files  Files
	errors []string
}

func (b *builder) addError(format string, args ...any) {
	b.errors = append(b.errors, fmt.Sprintf(format, args...))
}

// addFile adds a file, or replaces an earlier file, at the path target. A nil mode is the default mode of the volume.
func (b *builder) addFile(target string, data []byte, mode *int32) {
	b.addOwnedFile(target, data, mode, nil)
}

func (b *builder) addOwnedFile(target string, data []byte, mode *int32, owner *int64) {
	m := *optional.First(optional.First(mode, b.mode), new(corev1.ConfigMapVolumeSourceDefaultMode))
	if m < 0 || m > 0o777 {
		b.addError("file %.256q: mode %#o is not from 0 to 0777", target, m)
		return
	}
	if target != "" { // path.Clean would turn "" into "."
		target = path.Clean(target)
	}
	b.files[target] = atomicwriter.File{Data: data, Mode: fs.FileMode(m), Owner: owner}
}

// maxErrors is the maximum number of errors that buildResult names.
const maxErrors = 10

// buildResult returns the files. If there are errors, it returns one error with the texts of the first maxErrors errors. An
// invalid file path is an error too.
func (b *builder) buildResult() (Files, error) {
	if n := len(b.errors); n > maxErrors {
		b.errors = append(b.errors[:maxErrors], fmt.Sprintf("and %d more", n-maxErrors))
	}
	if len(b.errors) > 0 {
		return nil, errors.New(strings.Join(b.errors, "; "))
	}
	if err := atomicwriter.Validate(b.files); err != nil {
		return nil, err
	}
	return b.files, nil
}
