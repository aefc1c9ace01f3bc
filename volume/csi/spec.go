// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/seed81659283/nodeagent/internal/optional"
	"github.com/seed81659283/nodeagent/volume"
)

// volumeSpec is what a driver has to know of a volume, from the pod or from its PV.
type volumeSpec struct {
	driver, handle string
	mode           storagev1.VolumeLifecycleMode
	readOnly       bool
	block          bool
	fsType         string
	accessMode     corev1.PersistentVolumeAccessMode
	writers        bool // one of its access modes is ReadWriteOnce or ReadWriteOncePod
	attributes     map[string]string
	mountOptions   []string

	stageSecret, publishSecret, expandSecret *corev1.SecretReference
}

// specOf returns what a driver has to know of a volume.
func specOf(v *volume.Volume) (volumeSpec, error) {
	switch {
	case v.PV != nil && v.PV.Spec.CSI != nil:
		return persistent(v)
	case v.PV == nil && v.Source != nil && v.Source.CSI != nil && v.Pod != nil:
		return inline(v)
	}
	return volumeSpec{}, errors.New("it is no CSI volume")
}

// inline returns that of a volume in the pod itself, which exists as long as the pod.
func inline(v *volume.Volume) (volumeSpec, error) {
	c := v.Source.CSI
	s := volumeSpec{
		driver: c.Driver, handle: inlineHandle(v.UID, v.Name), mode: storagev1.VolumeLifecycleEphemeral, readOnly: optional.IsTrue(c.ReadOnly),
		fsType: *optional.OrZero(c.FSType), accessMode: corev1.ReadWriteOnce, writers: true, attributes: c.VolumeAttributes,
	}
	if c.NodePublishSecretRef != nil {
		s.publishSecret = &corev1.SecretReference{Namespace: v.Pod.Namespace, Name: c.NodePublishSecretRef.Name}
	}
	return s, s.check()
}

// persistent returns that of a PV. The first of its access modes counts, as for the kubelet.
func persistent(v *volume.Volume) (volumeSpec, error) {
	pv := &v.PV.Spec
	c := pv.CSI
	s := volumeSpec{
		driver: c.Driver, handle: c.VolumeHandle, mode: storagev1.VolumeLifecyclePersistent, readOnly: v.ReadOnly, block: v.Block,
		fsType: c.FSType, accessMode: corev1.ReadWriteOnce, attributes: c.VolumeAttributes, mountOptions: pv.MountOptions,
		stageSecret: c.NodeStageSecretRef, publishSecret: c.NodePublishSecretRef, expandSecret: c.NodeExpandSecretRef,
	}
	if len(pv.AccessModes) > 0 {
		s.accessMode = pv.AccessModes[0]
	}
	for _, m := range pv.AccessModes {
		s.writers = s.writers || m == corev1.ReadWriteOnce || m == corev1.ReadWriteOncePod
	}
	return s, s.check()
}

func (s *volumeSpec) check() error {
	if s.handle == "" {
		return errors.New("the volume handle is empty")
	}
	return checkDriver(s.driver)
}

// maxDriver is how long the name of a driver may be.
const maxDriver = 63

// checkDriver returns an error for what cannot be the name of a driver, which is part of paths.
func checkDriver(name string) error {
	if len(name) > maxDriver {
		return fmt.Errorf("driver name %.80q has more than %d bytes", name, maxDriver)
	}
	if problems := validation.IsDNS1123Subdomain(strings.ToLower(name)); len(problems) > 0 {
		return fmt.Errorf("driver name %q is invalid", name)
	}
	return nil
}

// inlineHandle returns the handle of a volume of a pod itself.
func inlineHandle(podUID, name string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(podUID+name)))
}

// attachmentName returns the name of the VolumeAttachment object of a volume.
func attachmentName(handle, driver, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+node)))
}

// The names of files and directories, which are the kubelet's.
const (
	dataFile  = "vol_data.json"
	mountDir  = "mount"
	globalDir = "globalmount"
	blockDir  = "volumeDevices"
)

// pluginDir is where devices are, below the directory of plugins.
func pluginDir() string { return filepath.FromSlash(volume.CSI) }

// stagingDir returns where a volume is staged, below the directory of plugins.
func stagingDir(driver, handle string) string {
	return filepath.Join(pluginDir(), driver, fmt.Sprintf("%x", sha256.Sum256([]byte(handle))), globalDir)
}

// The directories of all block volumes, beside which each has one of its own.
const (
	allStaging = "staging"
	allPublish = "publish"
)

// checkBlockName returns an error for a PV whose own directory would be that of all block volumes.
func checkBlockName(pv string) error {
	if pv == allStaging || pv == allPublish {
		return fmt.Errorf("PV %s cannot be a block volume: %s of all of them has its name", pv, filepath.Join(pluginDir(), blockDir, pv))
	}
	return nil
}

// blockPaths are the places of a block volume by its PV, below the directory of plugins.
type blockPaths struct{ staging, publish, home, dev, data string }

func blockPathsOf(name string) blockPaths {
	root := filepath.Join(pluginDir(), blockDir)
	home := filepath.Join(root, name)
	return blockPaths{
		staging: filepath.Join(root, allStaging, name), publish: filepath.Join(root, allPublish, name),
		home: home, dev: filepath.Join(home, "dev"), data: filepath.Join(home, "data"),
	}
}
