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

// Subject is a plugin that [TestPlugin] tests, with a volume for it.
type Subject struct {
	Plugin volume.Plugin
	Name   string // of the plugin, such as [volume.EmptyDir]
	// Pod is the pod that the volume is of, the first one that it has.
	Pod *corev1.Pod
	// PV is what the volume's claim is bound to; nil: it has none. With a device, which a [volume.Stager] says of it, it is staged
	// before it is set up, and unstaged after it is torn down.
	PV *corev1.PersistentVolume
	// Outside says that the volume is not below the directory of the pod, and that a teardown leaves it alone.
	Outside bool
	// Mounted says that the volume is mounted on its directory. One that has files in it and is no mount is left alone.
	Mounted bool
}

// The rules, which are in the documentation of volume.Plugin.
const (
	ruleIdempotent = "set-up: it is called again for a volume that is set up, by an agent that was started again or to bring it up to date, and leaves alone what is right."
	ruleRemoves    = "teardown: TearDown removes a volume, and nothing that somebody has mounted in it."
	ruleAbsent     = "teardown: One that is absent is success."
	ruleContext    = "context: Both methods return when ctx ends, with its error."
	ruleStage      = "stage: Stage makes a device ready, for one of the volumes that share it. It is idempotent."
	ruleUnstage    = "unstage: Unstage undoes Stage, by what is in the record."
	ruleNever      = "unstage: What was never staged is success."
	rulePartial    = "failure: After an error there may be something left, which is torn down like any other, unless it wraps a [FinalError]."
)

// TestPlugin checks that a plugin does what the documentation of volume.Plugin says. subject is called once for each case.
func TestPlugin(t *testing.T, subject func(t *testing.T) Subject) {
	cases := map[string]func(c *check){
		"SetUpTwice":       (*check).setUpTwice,
		"TearDownTwice":    (*check).tearDownTwice,
		"TearDownAbsent":   (*check).tearDownAbsent,
		"TearDownPartial":  (*check).tearDownPartial,
		"TearDownByRecord": (*check).tearDownByRecord,
		"Canceled":         (*check).canceled,
		"StageTwice":       (*check).stageTwice,
		"UnstageAbsent":    (*check).unstageAbsent,
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) {
			s := subject(t)
			run(&check{Check: &suite.Check{T: t}, Subject: s, podDir: filepath.Join(t.TempDir(), "pods", string(s.Pod.UID))})
		})
	}
}

// check is one case.
type check struct {
	*suite.Check
	Subject
	podDir string
}

// volume returns the volume as a plugin is asked for it.
func (c *check) volume() volume.Volume {
	source := &c.Pod.Spec.Volumes[0]
	v := c.recorded()
	v.Pod, v.Source, v.PV = c.Pod, source, c.PV
	if c.PV != nil {
		v.MountOptions = c.PV.Spec.MountOptions
	}
	if err := os.MkdirAll(filepath.Dir(v.Dir), 0o750); err != nil {
		c.Fatal(err)
	}
	return v
}

// recorded returns the volume as it is known from its record.
func (c *check) recorded() volume.Volume {
	name := c.Pod.Spec.Volumes[0].Name
	spec := name
	if c.PV != nil {
		spec = c.PV.Name
	}
	v := volume.Volume{
		UID: string(c.Pod.UID), Name: name, Spec: spec, Plugin: c.Name, PodDir: c.podDir, PluginDir: filepath.Join(filepath.Dir(filepath.Dir(c.podDir)), "plugins"),
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

// stage stages the device of a volume, if it has one.
func (c *check) stage(v volume.Volume) {
	c.Helper()
	if v.Device.Name == "" {
		return
	}
	if v.StagingDir != "" {
		if err := os.MkdirAll(filepath.Dir(v.StagingDir), 0o750); err != nil {
			c.Fatal(err)
		}
	}
	c.Succeed(c.Plugin.(volume.Stager).Stage(c.Context(), v), ruleStage, "Stage")
}

// unstage undoes that by the record, and finds nothing left.
func (c *check) unstage(rule string) {
	c.Helper()
	v := c.recorded()
	if v.Device.Name == "" {
		return
	}
	v.UID, v.PodDir, v.Dir = "", "", ""
	c.Succeed(c.Plugin.(volume.Stager).Unstage(c.Context(), v), rule, "Unstage")
	if v.StagingDir != "" {
		_, err := os.Lstat(v.StagingDir)
		c.Hold(errors.Is(err, fs.ErrNotExist), rule, "after Unstage %s is there: %v", v.StagingDir, err)
	}
}

// A device that is staged twice, as after a restart of the agent, keeps what is set up of it.
func (c *check) stageTwice() {
	m := c.setUp()
	c.stage(c.volume())
	_, err := os.Stat(m.HostPath)
	c.Succeed(err, ruleStage, "look at the volume")
	c.tearDown(c.volume(), ruleRemoves)
	c.unstage(ruleUnstage)
	c.unstage(ruleNever)
}

func (c *check) unstageAbsent() { c.unstage(ruleNever) }

func (c *check) setUp() volume.Mount {
	c.Helper()
	v := c.volume()
	c.stage(v)
	m, err := c.Plugin.SetUp(c.Context(), v)
	c.Succeed(err, ruleIdempotent, "SetUp")
	c.Hold(m.HostPath != "", ruleIdempotent, "SetUp returns no path")
	if _, err := os.Stat(m.HostPath); err != nil {
		c.Hold(false, ruleIdempotent, "SetUp returns a path that is not there: %v", err)
	}
	return m
}

// tearDown tears down, and finds nothing left.
func (c *check) tearDown(v volume.Volume, rule string) {
	c.Helper()
	c.Succeed(c.Plugin.TearDown(c.Context(), v), rule, "TearDown")
	_, err := os.Lstat(v.Dir)
	c.Hold(errors.Is(err, fs.ErrNotExist), rule, "after TearDown %s is there: %v", v.Dir, err)
	_, err = os.Lstat(filepath.Join(c.podDir, "plugins"))
	c.Hold(errors.Is(err, fs.ErrNotExist), rule, "after TearDown the directory of plugins is there: %v", err)
}

// A file of a container stays where it is when a volume is set up again.
func (c *check) setUpTwice() {
	m := c.setUp()
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
	again := c.setUp()
	c.Hold(again == m, ruleIdempotent, "SetUp returns %+v, then %+v", m, again)
	if kept != "" {
		_, err := os.Stat(kept)
		c.Succeed(err, ruleIdempotent, "read what a container has written")
		info, err := os.Stat(m.HostPath)
		c.Hold(err == nil && info.Mode().Perm() == 0o711, ruleIdempotent, "the mode that a container has set is %v: %v", info.Mode(), err)
	}
	c.tearDown(c.volume(), ruleRemoves)
	c.unstage(ruleUnstage)
}

func (c *check) tearDownTwice() {
	c.setUp()
	v := c.volume()
	c.tearDown(v, ruleRemoves)
	c.tearDown(v, ruleAbsent)
	c.setUp()
	c.tearDown(v, ruleRemoves)
	c.unstage(ruleUnstage)
}

func (c *check) tearDownAbsent() {
	c.tearDown(c.volume(), ruleAbsent)
	c.tearDown(c.recorded(), ruleAbsent)
}

// An agent that dies leaves the directory of a volume, and nothing else.
func (c *check) tearDownPartial() {
	v, half := c.volume(), "half/written"
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
	c.tearDown(v, rulePartial)
}

func (c *check) tearDownByRecord() {
	c.setUp()
	c.tearDown(c.recorded(), ruleRemoves)
	c.unstage(ruleUnstage)
}

// Nobody wants it any more. What was made is torn down.
func (c *check) canceled() {
	ctx, cancel := context.WithCancel(c.Context())
	cancel()
	if _, err := c.Plugin.SetUp(ctx, c.volume()); err != nil {
		c.Hold(errors.Is(err, context.Canceled), ruleContext, "SetUp: %v", err)
	}
	c.tearDown(c.volume(), rulePartial)
	c.unstage(ruleUnstage)
}
