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

// volumeSpec has those fields of an inline volume or a PV that a CSI driver needs.
type volumeSpec struct {
	driver, handle   string
	mode             storagev1.VolumeLifecycleMode
	readOnly         bool
	block            bool
	fsType           string
	accessMode       corev1.PersistentVolumeAccessMode
	singleNodeWriter bool // an access mode of the volume is ReadWriteOnce or ReadWriteOncePod
	attributes       map[string]string
	mountOptions     []string

	stageSecret, publishSecret, expandSecret *corev1.SecretReference
}

// specOf returns the fields of an inline volume or a PV that a CSI driver needs, or an error for another volume.
func specOf(vol *volume.Volume) (volumeSpec, error) {
	switch {
	case vol.PV != nil && vol.PV.Spec.CSI != nil:
		return persistentSpec(vol)
	case vol.PV == nil && vol.Source != nil && vol.Source.CSI != nil && vol.Pod != nil:
		return inlineSpec(vol)
	}
	return volumeSpec{}, errors.New("not a CSI volume")
}

// inlineSpec returns those fields of an inline volume that a CSI driver needs.
func inlineSpec(vol *volume.Volume) (volumeSpec, error) {
	c := vol.Source.CSI
	s := volumeSpec{
		driver: c.Driver, handle: inlineHandle(vol.UID, vol.Name), mode: storagev1.VolumeLifecycleEphemeral, readOnly: optional.IsTrue(c.ReadOnly),
		fsType: *optional.OrZero(c.FSType), accessMode: corev1.ReadWriteOnce, singleNodeWriter: true, attributes: c.VolumeAttributes,
	}
	if c.NodePublishSecretRef != nil {
		s.publishSecret = &corev1.SecretReference{Namespace: vol.Pod.Namespace, Name: c.NodePublishSecretRef.Name}
	}
	return s, s.validate()
}

// persistentSpec returns the fields of vol.PV that a CSI driver needs, with its first access mode, as in the kubelet.
func persistentSpec(vol *volume.Volume) (volumeSpec, error) {
	pv := &vol.PV.Spec
	c := pv.CSI
	s := volumeSpec{
		driver: c.Driver, handle: c.VolumeHandle, mode: storagev1.VolumeLifecyclePersistent, readOnly: vol.ReadOnly, block: vol.Block,
		fsType: c.FSType, accessMode: corev1.ReadWriteOnce, attributes: c.VolumeAttributes, mountOptions: pv.MountOptions,
		stageSecret: c.NodeStageSecretRef, publishSecret: c.NodePublishSecretRef, expandSecret: c.NodeExpandSecretRef,
	}
	if len(pv.AccessModes) > 0 {
		s.accessMode = pv.AccessModes[0]
	}
	for _, m := range pv.AccessModes {
		s.singleNodeWriter = s.singleNodeWriter || m == corev1.ReadWriteOnce || m == corev1.ReadWriteOncePod
	}
	return s, s.validate()
}

func (s *volumeSpec) validate() error {
	if s.handle == "" {
		return errors.New("the volume handle is empty")
	}
	return checkDriver(s.driver)
}

// maxDriver is the maximum length of a driver name.
const maxDriver = 63

// checkDriver returns an error if the name of a CSI driver is not valid. Valid names are safe in paths.
func checkDriver(name string) error {
	if len(name) > maxDriver {
		return fmt.Errorf("driver name %.80q has more than %d bytes", name, maxDriver)
	}
	if problems := validation.IsDNS1123Subdomain(strings.ToLower(name)); len(problems) > 0 {
		return fmt.Errorf("driver name %q is invalid", name)
	}
	return nil
}

// inlineHandle returns the volume handle of an inline volume of a pod, the same as in the kubelet.
func inlineHandle(podUID, name string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(podUID+name)))
}

// attachmentName returns the name of the VolumeAttachment object for a volume that is attached to the node. The volume has
// this handle and this driver.
func attachmentName(handle, driver, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+node)))
}

// Names of files and directories, which the kubelet uses too.
const (
	dataFile  = "vol_data.json"
	mountDir  = "mount"
	globalDir = "globalmount"
	blockDir  = "volumeDevices"
)

// pluginDir returns the directory of all CSI devices, relative to Volume.PluginDir.
func pluginDir() string { return filepath.FromSlash(volume.CSI) }

// stagingDir returns the staging directory of the volume with this driver and this handle, relative to Volume.PluginDir.
func stagingDir(driver, handle string) string {
	return filepath.Join(pluginDir(), driver, fmt.Sprintf("%x", sha256.Sum256([]byte(handle))), globalDir)
}

// Names of the directories that contain the staging and target paths of all block volumes. Beside them are directories that are
// named after single PVs.
const (
	allStaging = "staging"
	allPublish = "publish"
)

// checkBlockName returns an error if the name of a PV is the name of a directory that all block volumes share.
func checkBlockName(pv string) error {
	if pv == allStaging || pv == allPublish {
		return fmt.Errorf("PV %s cannot be a block volume: directory %s is for all block volumes", pv, filepath.Join(pluginDir(), blockDir, pv))
	}
	return nil
}

// blockPaths has the directories of a block volume, relative to Volume.PluginDir.
type blockPaths struct{ staging, publish, home, dev, data string }

func blockPathsOf(name string) blockPaths {
	root := filepath.Join(pluginDir(), blockDir)
	home := filepath.Join(root, name)
	return blockPaths{
		staging: filepath.Join(root, allStaging, name), publish: filepath.Join(root, allPublish, name),
		home: home, dev: filepath.Join(home, "dev"), data: filepath.Join(home, "data"),
	}
}
