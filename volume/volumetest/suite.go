// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/suite"
	"github.com/seed81659283/nodeagent/volume"
)

// Subject is the plugin that [TestPlugin] tests, and a pod with the volume that it sets up.
type Subject struct {
	Plugin volume.Plugin
	Name   string // name of the plugin, such as [volume.EmptyDir]
	// Pod is a pod whose first volume is set up.
	Pod *corev1.Pod
	// PV is the PV of the volume's claim; nil: the volume has no claim. If the plugin is a [volume.Stager], the PV is staged
	// before the set-up and unstaged after the teardown.
	PV *corev1.PersistentVolume
	// Outside is true if the volume is not below the pod directory and a teardown keeps its files, as for hostPath.
	Outside bool
	// Mounted is true if the plugin mounts a file system on the directory of the volume. A teardown then keeps a directory with
	// files that is not mounted.
	Mounted bool
}

// Rules that failed checks cite. They are sentences of the documentation of volume.Plugin and volume.Stager.
const (
	ruleIdempotent = "set-up: It must be idempotent: it is also called after a restart of the agent, and to update the volume, and keeps all that is correct."
	ruleRemoves    = "teardown: TearDown removes a volume. It must not delete files of a file system that another program has mounted inside."
	ruleAbsent     = "teardown: An absent volume is no error."
	ruleContext    = "context: Both methods must return the error of ctx soon after ctx ends."
	ruleStage      = "stage: Stage prepares the device of vol, such as by mounting its file system at vol.StagingDir. It must be idempotent."
	ruleUnstage    = "unstage: Unstage reverts Stage; vol has only the recorded fields."
	ruleNever      = "unstage: A device that was never staged is no error."
	rulePartial    = "failure: When the pod is released, TearDown follows, unless the error wraps a [FinalError]."
)

// TestPlugin tests a plugin against the documentation of volume.Plugin and volume.Stager. For each test it calls subject,
// which returns a new plugin and a pod with a volume for it.
func TestPlugin(t *testing.T, subject func(t *testing.T) Subject) {
	cases := map[string]func(c *pluginCheck){
		"SetUpTwice":       (*pluginCheck).setUpTwice,
		"TearDownTwice":    (*pluginCheck).tearDownTwice,
		"TearDownAbsent":   (*pluginCheck).tearDownAbsent,
		"TearDownPartial":  (*pluginCheck).tearDownPartial,
		"TearDownByRecord": (*pluginCheck).tearDownByRecord,
		"Canceled":         (*pluginCheck).setUpCanceled,
		"StageTwice":       (*pluginCheck).stageTwice,
		"UnstageAbsent":    (*pluginCheck).unstageAbsent,
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) {
			s := subject(t)
			run(&pluginCheck{Check: &suite.Check{T: t}, Subject: s, podDir: filepath.Join(t.TempDir(), "pods", string(s.Pod.UID))})
		})
	}
}

// pluginCheck has the plugin, the pod and the directories of one test of the suite.
type pluginCheck struct {
	*suite.Check
	Subject
	podDir string
}

// fullVolume returns the volume of the pod as [volume.Volumes] passes it to SetUp. It also creates the parent directory of the
// volume.
func (c *pluginCheck) fullVolume() volume.Volume {
	source := &c.Pod.Spec.Volumes[0]
	v := c.recordedVolume()
	v.Pod, v.Source, v.PV = c.Pod, source, c.PV
	if c.PV != nil {
		v.MountOptions = c.PV.Spec.MountOptions
	}
	if err := os.MkdirAll(filepath.Dir(v.Dir), 0o750); err != nil {
		c.Fatal(err)
	}
	return v
}

// recordedVolume returns the volume of the pod as [volume.Volumes] passes it to TearDown after a restart of the agent: without
// Pod, Source and PV.
func (c *pluginCheck) recordedVolume() volume.Volume {
	name := c.Pod.Spec.Volumes[0].Name
	spec := name
	if c.PV != nil {
		spec = c.PV.Name
	}
	v := volume.Volume{
		UID: string(c.Pod.UID), Name: name, SpecName: spec, Plugin: c.Name, PodDir: c.podDir, PluginDir: filepath.Join(filepath.Dir(filepath.Dir(c.podDir)), "plugins"),
		Dir:  filepath.Join(c.podDir, "volumes", filepath.Base(filepath.Dir(c.Name))+"~"+filepath.Base(c.Name), spec),
		Warn: func(string, string) {},
	}
	if s, ok := c.Plugin.(volume.Stager); ok {
		asked := v
		asked.Pod, asked.Source, asked.PV = c.Pod, &c.Pod.Spec.Volumes[0], c.PV
		d, err := s.Device(c.Context(), asked)
		c.Succeed(err, ruleStage, "Device")
		if v.Device = d; d.Dir != "" {
			v.StagingDir = filepath.Join(v.PluginDir, d.Dir)
		}
	}
	return v
}

// stageDevice stages the device of a volume, if it has one.
func (c *pluginCheck) stageDevice(vol volume.Volume) {
	c.Helper()
	if vol.Device.Name == "" {
		return
	}
	if vol.StagingDir != "" {
		if err := os.MkdirAll(filepath.Dir(vol.StagingDir), 0o750); err != nil {
			c.Fatal(err)
		}
	}
	c.Succeed(c.Plugin.(volume.Stager).Stage(c.Context(), vol), ruleStage, "Stage")
}

// checkUnstage calls Unstage, and checks that the staging directory is removed. If a check fails, the test failure cites the
// argument rule.
func (c *pluginCheck) checkUnstage(rule string) {
	c.Helper()
	v := c.recordedVolume()
	if v.Device.Name == "" {
		return
	}
	v.UID, v.PodDir, v.Dir = "", "", ""
	c.Succeed(c.Plugin.(volume.Stager).Unstage(c.Context(), v), rule, "Unstage")
	if v.StagingDir != "" {
		_, err := os.Lstat(v.StagingDir)
		c.Hold(errors.Is(err, fs.ErrNotExist), rule, "after Unstage %s exists: %v", v.StagingDir, err)
	}
}

// stageTwice checks that a second Stage succeeds and the volume remains set up. Stage is called again after a restart of the
// agent.
func (c *pluginCheck) stageTwice() {
	m := c.checkSetUp()
	c.stageDevice(c.fullVolume())
	_, err := os.Stat(m.HostPath)
	c.Succeed(err, ruleStage, "stat the volume")
	c.checkTearDown(c.fullVolume(), ruleRemoves)
	c.checkUnstage(ruleUnstage)
	c.checkUnstage(ruleNever)
}

func (c *pluginCheck) unstageAbsent() { c.checkUnstage(ruleNever) }

func (c *pluginCheck) checkSetUp() volume.Mount {
	c.Helper()
	v := c.fullVolume()
	c.stageDevice(v)
	m, err := c.Plugin.SetUp(c.Context(), v)
	c.Succeed(err, ruleIdempotent, "SetUp")
	c.Hold(m.HostPath != "", ruleIdempotent, "SetUp returns no path")
	if _, err := os.Stat(m.HostPath); err != nil {
		c.Hold(false, ruleIdempotent, "SetUp returns a path that does not exist: %v", err)
	}
	return m
}

// checkTearDown calls TearDown and checks that the directories of the volume are removed. A test failure cites the rule.
func (c *pluginCheck) checkTearDown(vol volume.Volume, rule string) {
	c.Helper()
	c.Succeed(c.Plugin.TearDown(c.Context(), vol), rule, "TearDown")
	_, err := os.Lstat(vol.Dir)
	c.Hold(errors.Is(err, fs.ErrNotExist), rule, "after TearDown %s exists: %v", vol.Dir, err)
	_, err = os.Lstat(filepath.Join(c.podDir, "plugins"))
	c.Hold(errors.Is(err, fs.ErrNotExist), rule, "after TearDown the directory of plugins exists: %v", err)
}

// setUpTwice checks that a second SetUp keeps the files that a container wrote, and the mode that a container set.
func (c *pluginCheck) setUpTwice() {
	m := c.checkSetUp()
	kept := ""
	if info, err := os.Stat(m.HostPath); err == nil && info.IsDir() && !m.ReadOnly {
		kept = filepath.Join(m.HostPath, "kept")
		if err := os.WriteFile(kept, []byte("data"), 0o600); err != nil {
			c.Fatal(err)
		}
		if err := os.Chmod(m.HostPath, 0o711); err != nil {
			c.Fatal(err)
		}
	}
	again := c.checkSetUp()
	c.Hold(again == m, ruleIdempotent, "SetUp returns %+v, then %+v", m, again)
	if kept != "" {
		_, err := os.Stat(kept)
		c.Succeed(err, ruleIdempotent, "stat the file of a container")
		info, err := os.Stat(m.HostPath)
		c.Hold(err == nil && info.Mode().Perm() == 0o711, ruleIdempotent, "the mode set by a container is %v: %v", info.Mode(), err)
	}
	c.checkTearDown(c.fullVolume(), ruleRemoves)
	c.checkUnstage(ruleUnstage)
}

func (c *pluginCheck) tearDownTwice() {
	c.checkSetUp()
	v := c.fullVolume()
	c.checkTearDown(v, ruleRemoves)
	c.checkTearDown(v, ruleAbsent)
	c.checkSetUp()
	c.checkTearDown(v, ruleRemoves)
	c.checkUnstage(ruleUnstage)
}

func (c *pluginCheck) tearDownAbsent() {
	c.checkTearDown(c.fullVolume(), ruleAbsent)
	c.checkTearDown(c.recordedVolume(), ruleAbsent)
}

// tearDownPartial checks that TearDown succeeds for a directory with some files. An agent that is killed during SetUp leaves
// such a directory.
func (c *pluginCheck) tearDownPartial() {
	v, half := c.fullVolume(), "half/written"
	if c.Mounted {
		half = ""
	}
	if err := os.MkdirAll(filepath.Join(v.Dir, half), 0o755); err != nil {
		c.Fatal(err)
	}
	if c.Outside {
		c.Succeed(c.Plugin.TearDown(c.Context(), v), rulePartial, "TearDown")
		return
	}
	c.checkTearDown(v, rulePartial)
}

func (c *pluginCheck) tearDownByRecord() {
	c.checkSetUp()
	c.checkTearDown(c.recordedVolume(), ruleRemoves)
	c.checkUnstage(ruleUnstage)
}

// setUpCanceled checks that SetUp with a canceled context returns context.Canceled or succeeds, and that TearDown then succeeds.
func (c *pluginCheck) setUpCanceled() {
	ctx, cancel := context.WithCancel(c.Context())
	cancel()
	if _, err := c.Plugin.SetUp(ctx, c.fullVolume()); err != nil {
		c.Hold(errors.Is(err, context.Canceled), ruleContext, "SetUp: %v", err)
	}
	c.checkTearDown(c.fullVolume(), rulePartial)
	c.checkUnstage(ruleUnstage)
}
