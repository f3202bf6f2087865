#!/usr/bin/env bash
# Packs the installed tree of the library, as `cmake --install` lays it out, into an archive that is the same for the same input:
#   tools/dist.sh OUT.tar.gz WITH_CUDA libcgr.so libcgr.a libcgr_validation.a FILE...
# FILEs are headers (include/cgr/*.h and interop/*.h), examples (examples/*), LICENSE and NOTICE, and the templates in tools/cmake; WITH_CUDA is ON or
# OFF. The top folder is named for the version.
set -euo pipefail

out=$1 with_cuda=$2 shared=$3 static=$4 validation=$5
shift 5

header() { printf '%s\n' "$@" | grep '/cgr/base\.h$'; }
part() { sed -n "s/^#define CGR_VERSION_$1 \([0-9][0-9]*\)\$/\1/p" "$base"; }
base=$(header "$@")
version=$(part MAJOR).$(part MINOR).$(part PATCH)
soversion=$(part MAJOR)
if [[ $soversion == 0 ]]; then soversion=0.$(part MINOR); fi
private="-lpthread -lm"
if [[ $with_cuda == ON ]]; then private="-lcudart_static -ldl -lrt -lpthread -lm"; fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/cgr-$version
mkdir -p "$tree"/include/cgr/interop "$tree"/lib/pkgconfig "$tree"/lib/cmake/cgr "$tree"/share/licenses/cgr "$tree"/share/doc/cgr/examples

configure() {
  sed -e "s|@CGR_VERSION@|$version|g" -e "s|@CGR_SOVERSION@|$soversion|g" -e "s|@CGR_WITH_CUDA@|$with_cuda|g" \
    -e "s|@CGR_LIBS_PRIVATE@|$private|g" -e "s|@CGR_INCLUDEDIR@|include|g" -e "s|@CGR_LIBDIR@|lib|g" \
    -e "s|@CGR_PREFIX_FROM_PKGCONFIG@|../..|g" -e "s|@CGR_PREFIX_FROM_CMAKE@|../../..|g" "$1" > "$2"
}

for file in "$@"; do
  name=$(basename "$file" .in)
  case $file in
    */include/cgr/interop/*.h | include/cgr/interop/*.h) cp "$file" "$tree/include/cgr/interop/$name" ;;
    */include/cgr/*.h | include/cgr/*.h) cp "$file" "$tree/include/cgr/$name" ;;
    */examples/* | examples/*) cp "$file" "$tree/share/doc/cgr/examples/$name" ;;
    *.pc.in) configure "$file" "$tree/lib/pkgconfig/$name" ;;
    *.cmake.in) configure "$file" "$tree/lib/cmake/cgr/$name" ;;
    *) cp "$file" "$tree/share/licenses/cgr/$name" ;;
  esac
done
cp "$shared" "$tree/lib/libcgr.so.$version"
ln -s "libcgr.so.$version" "$tree/lib/libcgr.so.$soversion"
ln -s "libcgr.so.$soversion" "$tree/lib/libcgr.so"
cp "$static" "$tree/lib/libcgr.a"
cp "$validation" "$tree/lib/libcgr_validation.a"
find "$tree" -type d -exec chmod 755 {} +
find "$tree" -type f -exec chmod 644 {} +
chmod 755 "$tree/lib/libcgr.so.$version"

tar -C "$work" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - "cgr-$version" | gzip -9n > "$out"
