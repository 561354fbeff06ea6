/* Replaces cl/gpu/async_copy.h where interleaved.py runs a kernel. */
#undef copy_async
INLINE void copy_async(__local ACC_T *to, __global const ACC_T *from, const int bytes, const bool valid)
{
  emu_copy_late((uint)(ulong)to, from, valid ? bytes : 0, bytes);
}
#define copies_commit() emu_commit()
#define copies_wait(pending) emu_land(pending)
#define copies_wait_all() emu_land_all()
