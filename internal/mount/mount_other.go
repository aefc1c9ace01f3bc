// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package mount

import "errors"

func bind(string, string, BindOptions) error { return errors.ErrUnsupported }

func bindFD(int, string, BindOptions) error { return errors.ErrUnsupported }

func setAttrs(string, Attr, Attr, bool) error { return errors.ErrUnsupported }

func tmpfs(string, TmpfsOptions) error { return errors.ErrUnsupported }

func hugetlbfs(string, int64, Attr) error { return errors.ErrUnsupported }

func disk(string, string, string, []string) error { return errors.ErrUnsupported }

func isMountPoint(string) (bool, error) { return false, errors.ErrUnsupported }

func makeShared(string) error { return errors.ErrUnsupported }

func unmountFlags(bool) []int { return []int{0} }

func unmount(string, int) error { return errors.ErrUnsupported }

func busy(error) bool { return false }

func absent(error) bool { return false }
