// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package mount

import "errors"

func bindPath(string, string, BindOptions) error { return errors.ErrUnsupported }

func bindFD(int, string, BindOptions) error { return errors.ErrUnsupported }

func setAttrs(string, Attr, Attr, bool) error { return errors.ErrUnsupported }

func mountTmpfs(string, TmpfsOptions) error { return errors.ErrUnsupported }

func mountHugetlbfs(string, int64, Attr) error { return errors.ErrUnsupported }

func mountDisk(string, string, string, []string) error { return errors.ErrUnsupported }

func isMountPoint(string) (bool, error) { return false, errors.ErrUnsupported }

func makeShared(string) error { return errors.ErrUnsupported }

func unmountFlags(bool) []int { return []int{0} }

func unmountOnce(string, int) error { return errors.ErrUnsupported }

func isBusy(error) bool { return false }

func isAbsent(error) bool { return false }
