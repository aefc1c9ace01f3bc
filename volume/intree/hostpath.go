// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/optional"
	"github.com/seed81659283/nodeagent/internal/podfield"
	"github.com/seed81659283/nodeagent/volume"
)

// hostPath is the plugin for hostPath volumes. It only checks the path on the host, and creates it if the type of the volume says
// so.
type hostPath struct {
	node *node
}

// Check returns errors if the path of the hostPath volume contains ".." or its type is unknown. path is the field path of
// the volume.
func (*hostPath) Check(_ *corev1.Pod, v *corev1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, message := range podfield.CheckNoBacksteps(v.HostPath.Path) {
		errs = append(errs, field.Invalid(path.Child("path"), v.HostPath.Path, message))
	}
	if t := *optional.OrZero(v.HostPath.Type); !slices.Contains(hostPathTypes(), t) {
		errs = append(errs, field.NotSupported(path.Child("type"), t, hostPathTypes()))
	}
	return errs
}

func hostPathTypes() []corev1.HostPathType {
	return []corev1.HostPathType{
		corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory, corev1.HostPathFileOrCreate,
		corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev,
	}
}

// statTimeout is the maximum time that SetUp waits for the file system of the path. It may hang if its server is unavailable.
const statTimeout = 5 * time.Second

// SetUp checks that the file type on the host matches the hostPath type, and returns the path on the host. For the types
// with OrCreate it creates a missing file or directory. It mounts nothing.
func (h *hostPath) SetUp(ctx context.Context, vol volume.Volume) (volume.Mount, error) {
	source := vol.Source.HostPath
	if vol.PV != nil {
		source = vol.PV.Spec.HostPath
	}
	path, typ := source.Path, *optional.OrZero(source.Type)
	if wrong := podfield.CheckNoBacksteps(path); len(wrong) > 0 {
		return volume.Mount{}, &volume.FinalError{Err: fmt.Errorf("invalid HostPath %.256q: %s", path, wrong[0])}
	}
	// The server of the file system may be unavailable. Then only this pod must wait, not the container runtime.
	ctx, cancel := context.WithTimeout(ctx, statTimeout)
	defer cancel()
	err := h.node.calls.Do(ctx, path, func() error {
		if typ == corev1.HostPathUnset {
			_, _ = os.Stat(path) // triggers an automount; the result is ignored
			return nil
		}
		return checkType(path, typ)
	})
	if err != nil {
		return volume.Mount{}, &volume.FinalError{Err: err}
	}
	return volume.Mount{HostPath: path, ReadOnly: vol.ReadOnly}, nil
}

// TearDown does nothing: the path belongs to the host.
func (*hostPath) TearDown(context.Context, volume.Volume) error { return nil }

// checkType returns an error if the file at path is not of this type. It creates missing files of a type ...OrCreate.
func checkType(path string, typ corev1.HostPathType) error {
	info, err := os.Stat(path)
	if missing := os.IsNotExist(err); missing {
		switch typ {
		case corev1.HostPathDirectoryOrCreate:
			return os.MkdirAll(path, 0o755)
		case corev1.HostPathFileOrCreate:
			return createFile(path)
		}
	}
	words := map[corev1.HostPathType]string{
		corev1.HostPathDirectoryOrCreate: "directory", corev1.HostPathDirectory: "directory",
		corev1.HostPathFileOrCreate: "file", corev1.HostPathFile: "file", corev1.HostPathSocket: "socket file",
		corev1.HostPathCharDev: "character device", corev1.HostPathBlockDev: "block device",
	}
	want, ok := words[typ]
	switch {
	case !ok:
		return fmt.Errorf("%.64s is an invalid volume type", typ)
	case err != nil:
		return fmt.Errorf("hostPath type check failed: %s is not a %s, unable to determine its type: %w", path, want, err)
	case fileType(info.Mode()) != strings.TrimSuffix(string(typ), "OrCreate"):
		return fmt.Errorf("hostPath type check failed: %s is not a %s, it's a %s", path, want, fileType(info.Mode()))
	}
	return nil
}

// fileType returns the file type in mode as a HostPathType.
func fileType(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return string(corev1.HostPathDirectory)
	case mode.IsRegular():
		return string(corev1.HostPathFile)
	case mode&fs.ModeSocket != 0:
		return string(corev1.HostPathSocket)
	case mode&fs.ModeCharDevice != 0:
		return string(corev1.HostPathCharDev)
	case mode&fs.ModeDevice != 0:
		return string(corev1.HostPathBlockDev)
	default:
		return "file of an unknown type"
	}
}

func createFile(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}
